"""docs/cost.md says what the code does: its example runs, its tables are those that come out."""

import contextlib
import io
import re
from pathlib import Path

import numpy as np
import pytest

from mma.cost import exchange, open_table, paper_sources
from mma.cost.surface import FORMS
from tests.cost.hold_out import HELD, hold_out

DOC = Path(__file__).parents[2] / "docs" / "cost.md"
TEXT = DOC.read_text(encoding="utf-8")


EXAMPLES = re.findall(r"```python\n(.*?)```\n\nprints\n\n```\n(.*?)```", TEXT, re.DOTALL)


def test_there_are_two_examples():
    assert len(EXAMPLES) == TEXT.count("```python") == 2


@pytest.mark.parametrize(("code", "printed"), EXAMPLES, ids=["buyer", "cost"])
def test_an_example_prints_what_it_says(code, printed):
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(code, str(DOC), "exec"), {})
    assert out.getvalue() == printed


@pytest.mark.parametrize("held", HELD)
@pytest.mark.parametrize("source", paper_sources())
def test_the_hold_out_table_is_the_one_measured(source, held):
    table = open_table(source)
    found = hold_out(table, held)
    alone = " | ".join(f"{hold_out(table, held, forms=(form,), draws=3).miss:.2f}" for form in FORMS)
    inside = f"{found.within * found.cells:.0f} of {found.cells}"
    row = f"| {source} | {held}: {found.value:,} | {found.cells} | **{found.miss:.2f}** | {alone} | {found.unchanged:.2f} | {inside} |"
    assert row in TEXT


def test_what_is_said_about_negative_ratios():
    table = open_table("paper:svhn-extra")
    for target in np.arange(91.1, 94, 0.1):
        assert exchange(table, float(target), draws=0).ratios[0].totals < 0
    for target in np.arange(91.1, 94.6, 0.1):
        assert exchange(table, float(target), draws=0).ratios[2].totals < 0
    assert exchange(table, 94.8, draws=0).ratios[2].totals > 0


def test_its_pictures_are_there():
    for name in re.findall(r"\]\((\S+\.png)\)", TEXT):
        assert (DOC.parent / name).stat().st_size > 10_000
