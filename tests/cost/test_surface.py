import numpy as np
import pytest

from mma.cost import fit_surface, open_table, paper_sources, table_from_runs
from mma.cost.surface import FORMS
from tests.cost.hold_out import HELD, hold_out


@pytest.mark.parametrize(("source", "miss"), list(zip(paper_sources(), (1.02, 0.35, 0.15), strict=True)))
def test_the_surface_goes_through_the_data_as_docs_say(source, miss):
    table = open_table(source)
    surface = fit_surface(table, draws=0)
    rows, columns = np.nonzero(table.measured & (table.totals[:, None] > table.labels))
    points = np.stack([table.labels[columns], table.totals[rows]], axis=1).astype(float)
    assert np.abs(surface.predict(points) - table.accuracy[rows, columns]).mean() == pytest.approx(miss, abs=0.005)


def test_a_known_law_is_found_again_and_continued():
    def law(labels, total):
        return 100 - (2 + 300 * labels**-0.3 * total**-0.2)

    runs = [(n, t, law(n, t)) for n in (100, 200, 400, 800) for t in (1000, 3000, 9000, 27000)]
    surface = fit_surface(table_from_runs("law", runs))
    assert surface.forecast(800, 81_000).accuracy == pytest.approx(law(800, 81_000), abs=0.3)
    assert surface.forecast(1600, 9_000).accuracy == pytest.approx(law(1600, 9_000), abs=0.3)
    assert surface.forecast(800, 9_000).low is None, "one run per cell"


def test_a_forecast_says_how_far_it_reaches():
    surface = fit_surface(open_table("paper:cifar10"))
    inside, outside = surface.forecast(1000, 20_000), surface.forecast(8000, 75_000)
    assert not inside.beyond
    assert "within the data" in str(inside)
    assert (outside.reach_labels, outside.reach_total, outside.beyond) == (2.0, 1.5, True)
    assert "beyond the data by 2 times the labels, 1.5 times the images" in str(outside)
    assert surface.forecast(250, 20_000).reach_labels == 2.0


def test_intervals_widen_beyond_the_data():
    surface = fit_surface(open_table("paper:cifar100"))
    width = [f.high - f.low for f in (surface.forecast(8000, total) for total in (30_000, 100_000, 400_000))]
    assert width[0] < width[1] < width[2]


@pytest.mark.parametrize("source", paper_sources())
def test_still_further_out_it_refuses(source, refusal):
    table = open_table(source)
    for point in ((1, int(table.totals[-1])), (int(table.labels[0]), 11 * int(table.totals[-1]))):
        with refusal():
            fit_surface(table, draws=0).forecast(*point)


@pytest.mark.parametrize("source", paper_sources())
def test_far_out_it_stays_a_percentage(source):
    surface = fit_surface(open_table(source))
    (few, many), (small, large) = surface.labels, surface.totals
    for point in ((few // 10 + 1, large * 10), (few // 10 + 1, small // 10 + 1), (min(many * 10, small), small)):
        found = surface.forecast(*point)
        assert 0 <= found.low <= found.high <= 100
        assert 0 <= found.accuracy <= 100


def test_it_is_repeatable():
    first, second = (fit_surface(open_table("paper:cifar10"), draws=20).forecast(700, 60_000) for _ in range(2))
    assert first == second


def test_hold_out_beats_no_change_and_its_intervals_hold():
    found = [hold_out(open_table(source), held) for source in paper_sources() for held in HELD]
    assert np.mean([each.miss for each in found]) < 0.7
    assert np.mean([each.unchanged for each in found]) > 2
    alone = {
        form: [hold_out(open_table(s), h, forms=(form,), draws=3).miss for s in paper_sources() for h in HELD]
        for form in FORMS
    }
    assert all(np.mean(misses) > np.mean([each.miss for each in found]) for misses in alone.values())
    assert sum(each.within * each.cells for each in found) / sum(each.cells for each in found) >= 0.85


def test_too_few_cells_and_wrong_names_are_refused(refusal):
    tiny = table_from_runs("tiny", [(n, t, 60 + n / 5 + t / 20) for n in (10, 20) for t in (100, 200)])
    with refusal():
        fit_surface(tiny)
    with refusal():
        fit_surface(open_table("paper:cifar10"), draws=0).forecast(10, 5)
