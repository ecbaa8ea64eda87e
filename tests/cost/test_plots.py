"""The figures: every format, readable labels, the same bytes for the same numbers."""

from itertools import combinations

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

from mma.cost import Prices, ask, open_table, paper_sources, table_from_runs
from mma.cost.plots import _figure, cost_figure, draw_mixes, draw_ratios, paper_figure


def crowded_table():
    """Label counts and totals so close to each other that not all of them can be written."""
    sizes = [(n, t) for n in (100, 104, 108, 200, 900) for t in (1_000, 1_040, 1_080, 5_000, 90_000)]
    return table_from_runs("crowded", [(n, t, 40 + n / 30 + t / 5_000) for n, t in sizes])


def overlaps(texts, renderer):
    boxes = [text.get_window_extent(renderer) for text in texts if text.get_text() and text.get_visible()]
    return [(a, b) for a, b in combinations(boxes, 2) if a.overlaps(b)]


@pytest.mark.parametrize("source", [*paper_sources(), "crowded"])
def test_no_two_labels_are_printed_over_each_other(source):
    table = crowded_table() if source == "crowded" else open_table(source)
    answer = ask(table, prices=Prices(1, 0.1), draws=50)
    figure = _figure(2)
    draw_ratios(figure.axes[0], answer.targets, answer.prices)
    draw_mixes(figure.axes[1], table, [each.target for each in answer.targets[1:4]], answer.prices)
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    renderer = canvas.get_renderer()
    for axes in figure.axes:
        assert axes.get_title(loc="left") or axes is figure.axes[0]
        for axis in (axes.xaxis, axes.yaxis):
            assert len(axis.get_ticklabels()) >= 2
            assert not overlaps(axis.get_ticklabels(), renderer)
        assert not overlaps(axes.texts, renderer)


def test_a_png_gets_an_svg_and_a_pdf_beside_it_and_other_formats_stand_alone(tmp_path):
    table = open_table("paper:cifar100")
    answer = ask(table, draws=20)
    cost_figure(tmp_path / "a.png", table, answer.targets)
    cost_figure(tmp_path / "b.svg", table, answer.targets)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.pdf", "a.png", "a.svg", "b.svg"]
    starts = {".png": b"\x89PNG", ".svg": b"<?xml", ".pdf": b"%PDF"}
    assert all(path.read_bytes().startswith(starts[path.suffix]) for path in tmp_path.iterdir())
    assert "What is a label worth? paper:cifar100" in (tmp_path / "a.svg").read_text()


def test_the_same_figure_is_the_same_bytes(tmp_path):
    for name in ("a", "b"):
        paper_figure(tmp_path / f"{name}.png", draws=20)
    for kind in ("png", "svg", "pdf"):
        assert (tmp_path / f"a.{kind}").read_bytes() == (tmp_path / f"b.{kind}").read_bytes()


def test_a_name_with_dollar_signs_is_no_formula(tmp_path):
    table = table_from_runs(r"$\nonsense{$.csv", [(n, t, n + t / 20) for n in (10, 20) for t in (100, 200)])
    cost_figure(tmp_path / "a.svg", table, ask(table).targets)
    assert r"$\nonsense{$.csv" in (tmp_path / "a.svg").read_text()
