"""Every public name says what it takes, what it returns, and shows an example that runs."""

import doctest
import inspect

import numpy as np
import pytest

import mma
from mma.query import Labeled

TINY = ["growth.start=10", "growth.budget=20", "growth.first=4", "growth.every=4", "growth.final=4", "net.filters=4"]
TINY += ["log.every=4", "log.checkpoint=4", "log.last=2", "optim.batch=8"]
NAMES = {**{name: getattr(mma, name) for name in mma.__all__}, "Labeled": Labeled, "Query.select": mma.Query.select}
BARE = {"Algorithm", "Net", "Oracle", "Model", "Run"}  # nobody makes these from parameters


@pytest.mark.parametrize("name", NAMES)
def test_a_public_name_documents_its_parameters_and_has_an_example(name):
    text = inspect.getdoc(NAMES[name]) or ""
    assert ">>>" in text
    assert name in BARE or "Parameters\n----------" in text


@pytest.mark.parametrize("name", [name for name in NAMES if inspect.isfunction(NAMES[name]) and "." not in name])
def test_every_parameter_of_a_function_is_documented(name):
    text = inspect.getdoc(NAMES[name]) or ""
    section = text.partition("Parameters\n----------")[2].partition("\n\n")[0]
    headings = [line.partition(":")[0] for line in section.splitlines() if line and not line.startswith(" ")]
    named = {part.strip() for heading in headings for part in heading.split(",")}
    assert set(inspect.signature(NAMES[name]).parameters) == named


@pytest.mark.slow
def test_the_examples_run(tmp_path, monkeypatch):
    """They share a folder with a small trained run and a small grid."""
    monkeypatch.chdir(tmp_path)
    mma.train(mma.new_run(mma.change(mma.preset("digits"), TINY), "runs/digits"))
    mma.grid("digits", axes={"query": ["random"]}, settings=TINY, seeds=1, workers=1, out="grids/tiny", progress=False)
    shared = {"mma": mma, "np": np, "tiny": TINY}
    finder, runner = doctest.DocTestFinder(recurse=False), doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    wrong = []
    for name, thing in NAMES.items():
        own = vars(inspect.getmodule(thing))
        for example in finder.find(thing, name, globs={**own, **shared}):
            said: list[str] = []
            runner.run(example, out=said.append)
            wrong += said
    assert not wrong, "\n".join(wrong)
