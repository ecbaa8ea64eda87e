import math
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mma.cost import exchange, open_table, paper_sources, table_from_runs
from mma.cost.exchange import ALREADY, NEVER, Status, default_targets, first_reach, interval, isotonic, totals_needed
from mma.cost.table import CellMean, table_from_cells
from tests.each import each

CIFAR10, SVHN = "paper:cifar10", "paper:svhn-extra"


def ratios(source, target, **options):
    return [ratio.totals for ratio in exchange(open_table(source), target, draws=0, **options).ratios]


def test_the_papers_twenty_times():
    found = exchange(open_table(CIFAR10), 91.69)
    assert [need.total for need in found.needs] == [50_000, 39_114, 28_377, 21_659]
    assert found.needs[1].unlabeled == 38_114
    first = found.ratios[0]
    assert (first.fewer, first.more) == (500, 1000)
    assert first.totals == pytest.approx(21.77, abs=0.01)
    assert first.unlabeled == pytest.approx(22.77, abs=0.01)
    assert first.totals_interval.low < 20 < first.totals_interval.high


def test_the_value_of_a_label_drops_as_labels_are_added():
    for target in np.arange(80.4, 91.69, 0.1):
        first, second, third = ratios(CIFAR10, float(target))
        assert first > second > third


def test_the_highest_ratio_is_about_twenty():
    assert max(ratios(CIFAR10, 91.69)) == pytest.approx(20, rel=0.1)
    svhn = [r for target in np.arange(91.1, 97.01, 0.1) for r in ratios(SVHN, float(target))]
    assert max(svhn) == pytest.approx(20, rel=0.1)
    assert max(ratios(SVHN, 97.36)) > 500, "near the top of a flat column it does not hold"


def test_past_two_thousand_labels_a_label_is_worth_about_three_images_or_less():
    assert all(ratios(SVHN, float(target))[2] < 3 for target in np.arange(91.1, 96.81, 0.1))
    last = [ratios(CIFAR10, float(target))[2] for target in np.arange(80.4, 91.69, 0.1)]
    assert 2.9 < min(last) < 3 < max(last) < 3.4
    assert ratios(CIFAR10, 89.5)[2] < 3


def test_below_zero_is_a_finding():
    found = exchange(open_table(SVHN), 93.5, draws=0)
    assert all(ratio.totals < 0 for ratio in found.ratios)
    assert found.ratios[0].finding == "below 0 on totals: 1,000 labels need more images than 500, not shown"


def test_below_zero_is_shown_only_where_the_whole_interval_is():
    ratios = [
        ratio for target in np.arange(91.2, 95.6, 0.2) for ratio in exchange(open_table(SVHN), float(target)).ratios
    ]
    below = [ratio for ratio in ratios if ratio.totals is not None and ratio.totals < 0]
    assert {"not shown" in ratio.finding for ratio in below} == {True, False}
    for ratio in below:
        assert ("not shown" not in ratio.finding) == (
            ratio.totals_interval is not None and ratio.totals_interval.high < 0
        )
    assert min(ratio.unlabeled for ratio in ratios if ratio.unlabeled is not None) > 0, "on |U|, as printed, none is"


@pytest.mark.parametrize("source", paper_sources())
def test_on_unlabeled_images_a_ratio_is_exactly_one_more(source):
    for target in default_targets(open_table(source)):
        for ratio in exchange(open_table(source), target, draws=50).ratios:
            if ratio.totals is not None:
                assert ratio.unlabeled == ratio.totals + 1
            if ratio.totals_interval is not None:
                assert ratio.unlabeled_interval.low == pytest.approx(ratio.totals_interval.low + 1)


def test_a_column_is_read_at_the_first_step_up_to_the_target():
    totals, falls = np.array([10.0, 20, 30, 40]), np.array([50.0, 60, 55, 65])
    assert first_reach(totals, falls, 58) == 18
    assert first_reach(totals, falls, 62) == 37
    assert first_reach(totals, falls, 60) == 20
    assert first_reach(totals, falls, 50) == 10
    assert first_reach(totals, falls, 65) == 40
    assert first_reach(totals, falls, 49.9) == ALREADY
    assert first_reach(totals, falls, 65.1) == NEVER
    assert first_reach(totals, np.array([50.0, 50, 50, 50]), 50) == 10


@settings(max_examples=100, deadline=None)
@given(values=st.lists(st.floats(1, 99), min_size=2, max_size=9), target=st.floats(1, 99))
def test_reading_a_column_gives_the_first_place_where_its_line_has_the_target(values, target):
    totals = np.arange(1.0, len(values) + 1) * 100
    reach = float(first_reach(totals, np.array(values), target))
    if reach == ALREADY:
        assert values[0] > target
    elif reach == NEVER:
        assert max(values) < target
    else:
        assert np.interp(reach, totals, values) == pytest.approx(target, abs=1e-6)
        assert all(value <= target + 1e-9 for total, value in zip(totals, values, strict=True) if total < reach - 1e-6)


@settings(max_examples=50, deadline=None)
@given(
    values=st.lists(st.floats(0, 100), min_size=1, max_size=12),
    weights=st.lists(st.floats(0.01, 100), min_size=12, max_size=12),
)
def test_isotonic_columns_are_those_of_scikit_learn(values, weights):
    from sklearn.isotonic import isotonic_regression

    y, w = np.array(values), np.array(weights[: len(values)])
    np.testing.assert_allclose(isotonic(y, w), isotonic_regression(y, sample_weight=w), atol=1e-6)
    np.testing.assert_allclose(
        isotonic(np.stack([y, y + 1]), w), np.stack([isotonic(y, w), isotonic(y, w) + 1]), atol=1e-6
    )


def test_isotonic_reading_ignores_one_bad_cell():
    table = open_table(SVHN)  # 500 labels: 97.07 at 100,000, then 96.55 +- 1.56 at 200,000, then 97.38
    raw, smooth = (totals_needed(table, table.accuracy, 97.3, smooth=s)[0] for s in (False, True))
    assert raw == pytest.approx(200_000 + 404_388 * (97.3 - 96.55) / (97.38 - 96.55))
    assert 200_000 < smooth < 604_388
    np.testing.assert_allclose(
        totals_needed(table, table.accuracy, 96.0, smooth=True), totals_needed(table, table.accuracy, 96.0)
    )


def test_inside_outside_and_in_how_many_draws():
    needs = exchange(open_table(CIFAR10), 91.69).needs
    assert needs[0].missed == pytest.approx(0.5, abs=0.06), "the target is the mean of the last cell"
    assert math.isinf(needs[0].interval.high)
    low = exchange(open_table(CIFAR10), 75).needs[3]
    assert (low.status, low.total, low.smallest, low.already) == (Status.ALREADY, None, 5_000, 1.0)
    high = exchange(open_table(CIFAR10), 94.5).needs[0]
    assert (high.status, high.total, high.missed) == (Status.NEVER, None, 1.0)
    undefined = exchange(open_table(CIFAR10), 94.5).ratios[0]
    assert undefined.totals is None
    assert undefined.finding == "no ratio, 500 does not reach it, 1,000 does not reach it"


@pytest.mark.parametrize("smooth", [False, True])
@pytest.mark.parametrize("source", paper_sources())
def test_every_ratio_has_an_interval_that_holds_it(source, smooth):
    table = open_table(source)
    for target in default_targets(table):
        found = exchange(table, target, smooth=smooth)
        for ratio in found.ratios:
            if ratio.totals is not None:
                assert ratio.totals_interval.low <= ratio.totals <= ratio.totals_interval.high
        for need in found.needs:
            shares = [need.interval.share if need.interval else None, need.already, need.missed]
            assert None in shares or sum(shares) == pytest.approx(1)


def test_draws_are_repeatable_and_as_wide_as_the_errors_of_the_means():
    table = open_table(CIFAR10)
    drawn = table.draws(4000, seed=1)
    np.testing.assert_array_equal(drawn, table.draws(4000, seed=1))
    assert not np.array_equal(drawn, table.draws(4000, seed=2))
    np.testing.assert_allclose(table.error[0, 0], 0.98 / 2)  # std divides by 5, so the error of the mean by root 4
    middle = np.diff(np.quantile(drawn[:, 0, 0], [0.25, 0.75]))
    assert middle == pytest.approx(2 * 0.741 * 0.49, rel=0.1), "quartiles of Student's t with 4 degrees of freedom"


def test_the_more_runs_the_narrower():
    def width(runs):
        cells = [CellMean(n, t, 60 + n / 5 + t / 20, 0.5, runs) for n in (10, 20) for t in (100, 200)]
        found = exchange(table_from_cells("t", cells), 70.5).ratios[0].totals_interval
        return found.high - found.low

    assert width(50) < width(5)


def test_few_runs_borrow_the_spread_of_the_whole_table():
    runs = [(n, t, 60 + n / 5 + t / 20 + s) for n in (10, 20) for t in (100, 200) for s in (0, 1)]
    table = table_from_runs("t", runs)
    assert table.has_spread
    assert (table.freedom == 4).all()
    np.testing.assert_allclose(table.error, np.std([0, 1], ddof=1) / np.sqrt(2))
    assert "spread of the whole table" in table.notes[0]


def test_one_run_per_cell_has_no_intervals_and_says_so():
    table = table_from_runs("t", [(n, t, 60 + n / 5 + t / 20) for n in (10, 20) for t in (100, 200)])
    found = exchange(table, 70.5)
    assert found.ratios[0].totals == pytest.approx(4)
    assert found.ratios[0].totals_interval is found.needs[0].interval is found.needs[0].missed is None
    assert "One run per cell" in table.notes[0]


def test_a_gap_in_the_grid_is_read_over_and_said():
    runs = [(n, t, 60 + n / 5 + t / 20) for n in (10, 20) for t in (100, 150, 200) if (n, t) != (10, 150)]
    table = table_from_runs("t", runs)
    assert "No measurement at (labels, total) (10, 150)" in table.notes[0]
    assert exchange(table, 69.5).needs[0].total == 150


def test_a_column_of_one_cell_has_no_totals_of_its_own():
    table = table_from_runs("t", [(10, 100, 60), (10, 200, 70), (20, 100, 65)])
    assert [need.status for need in exchange(table, 66).needs] == [Status.REACHED, Status.NEVER]
    assert [need.status for need in exchange(table, 62).needs] == [Status.REACHED, Status.ALREADY]
    assert exchange(table, 65).needs[1].total == 100


def test_identical_runs_do_not_break_the_isotonic_fit():
    cells = [CellMean(n, t, 60 + n / 5 + (t % 7), 0.0, 5) for n in (10, 20) for t in (100, 150, 200)]
    assert exchange(table_from_cells("t", cells), 66, smooth=True).needs[1].status in Status


@each(target=[99, 0.9, -5, 101, float("nan")])
def test_targets_that_make_no_sense_are_refused(target, refusal):
    with refusal():
        exchange(open_table(CIFAR10), target)


def test_the_room_imports_numpy_and_nothing_heavier():
    heavy = ("torch", "scipy", "sklearn", "matplotlib", "pandas")
    code = f"import sys, mma.cost; sys.exit(any(name in sys.modules for name in {heavy}))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_an_interval_takes_the_nearest_order_statistics():
    found = interval(np.arange(1_000.0), 0.9)
    assert (found.low, found.high, found.share) == (50, 949, 1.0)
    half_open = interval(np.array([1.0, 2.0, np.inf, np.nan]), 0.9)
    assert (half_open.low, half_open.high, half_open.share) == (1, np.inf, 0.5)
    assert interval(np.array([np.inf, np.inf]), 0.9) is None


def test_a_target_that_is_the_first_measurement_needs_the_first_total():
    column = np.array([60.0, 55.0, 70.0])
    assert first_reach(np.array([100, 200, 300]), column, 60.0) == 100
    assert first_reach(np.array([100, 200, 300]), column, 70.0) == 300


@pytest.mark.parametrize(("runs", "expected"), [(2, "pooled"), (3, "own")])
def test_three_runs_have_an_error_of_their_own_and_two_share_that_of_the_table(runs, expected):
    noisy = [60.0, 64.0, 62.0][:runs]
    others = [(n, t, 50 + n / 5 + t / 20 + s) for n, t in ((10, 200), (20, 100), (20, 200)) for s in (0.0, 0.1, 0.2)]
    table = table_from_runs("t", [*((10, 100, accuracy) for accuracy in noisy), *others])
    squares = sum((a - np.mean(noisy)) ** 2 for a in noisy) + 3 * sum((s - 0.1) ** 2 for s in (0.0, 0.1, 0.2))
    pooled = np.sqrt(squares / (runs - 1 + 6)) / np.sqrt(runs)
    own = np.std(noisy, ddof=1) / np.sqrt(runs)
    assert table.error[0, 0] == pytest.approx({"own": own, "pooled": pooled}[expected])
    assert table.freedom[0, 0] == {"own": runs - 1, "pooled": runs - 1 + 6}[expected]
