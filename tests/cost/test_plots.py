"""The figures: every format, readable labels, the same bytes for the same numbers."""

from itertools import combinations

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

from mma.cost import Prices, ask, open_table, paper_sources, table_from_runs
from mma.cost.plots import cost_figure, draw_mixes, draw_ratios, new_figure


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
    figure = new_figure(2)
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


def stars(table, target, prices, **options):
    """Where the stars of a drawing are, as (labels, total)."""
    axes = new_figure(1).axes[0]
    draw_mixes(axes, table, [target], prices, **options)
    return [(line.get_xdata()[0], line.get_ydata()[0]) for line in axes.lines if line.get_marker() == "*"]


@pytest.mark.parametrize("at", [None, (500, 40_000), (700, 20_000), (100, 90_000)])
def test_the_star_is_at_the_mix_that_the_answer_names(at):
    table, prices = open_table("paper:cifar10"), Prices(1, 0.1)
    best = ask(table, [91.69], prices=prices, at=at, draws=20).mixes[0][0]
    assert stars(table, 91.69, prices, at=at) == [(best.labels, best.total)]


@pytest.mark.parametrize("prices", [Prices(1, 0.1), Prices(1, 0), Prices(0, 1)])
def test_a_line_of_equal_cost_sells_nothing_that_one_has(prices):
    axes = new_figure(1).axes[0]
    draw_mixes(axes, open_table("paper:cifar10"), [91.69], prices, at=(700, 10_000))
    dotted = [line for line in axes.lines if line.get_linestyle() == ":"]
    assert len(dotted) == 1
    assert min(dotted[0].get_xdata()) >= 700
    if prices.image:
        assert min(dotted[0].get_ydata()) >= 10_000
        assert "more" in " ".join(text.get_text() for text in axes.texts)


def test_where_no_mix_reaches_the_target_there_is_no_star():
    runs = [(10, 100, 50), (10, 200, 60), (10, 400, 58), (20, 100, 55), (20, 200, 70), (20, 400, 68)]
    table, prices = table_from_runs("falling", runs), Prices(1, 0.1)
    assert stars(table, 70, prices) == [(20, 200)]
    assert stars(table, 70, prices, smooth=True) == []
    assert stars(table, 60, prices, at=(30, 100)) == [], "more labels than measured"


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
    table = open_table("paper:svhn-extra")
    for name in ("a", "b"):
        cost_figure(tmp_path / f"{name}.png", table, ask(table, draws=20).targets, Prices(1, 0.1))
    for kind in ("png", "svg", "pdf"):
        assert (tmp_path / f"a.{kind}").read_bytes() == (tmp_path / f"b.{kind}").read_bytes()


def test_a_name_with_dollar_signs_is_no_formula(tmp_path):
    table = table_from_runs(r"$\nonsense{$.csv", [(n, t, n + t / 20) for n in (10, 20) for t in (100, 200)])
    cost_figure(tmp_path / "a.svg", table, ask(table).targets)
    assert r"$\nonsense{$.csv" in (tmp_path / "a.svg").read_text()
