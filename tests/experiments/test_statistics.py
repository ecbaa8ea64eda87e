"""Statistics against values worked out by hand or by scipy, and what they say of too few runs."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from mma.experiments.report import statistics, summary
from mma.experiments.report import statistics as savings
from mma.experiments.report.results import Result, Results, RoundEnd


def made(cells: dict[tuple[str, int], list[float]], total: int = 1000) -> Results:
    runs = [
        Result(method, budget, total, seed, "done", value, 20, 100, budget)
        for (method, budget), values in cells.items()
        for seed, value in enumerate(values, 1)
    ]
    return Results(tuple(runs))


@given(st.lists(st.floats(-5, 5).filter(lambda v: abs(v) > 1e-3), min_size=2, max_size=12, unique_by=abs))
def test_the_signed_rank_test_is_scipys_where_that_is_exact(values):
    assert statistics.wilcoxon(np.array(values)) == pytest.approx(stats.wilcoxon(values, method="exact").pvalue)


def test_the_signed_rank_test_is_exact_with_ties_and_zeros():
    assert statistics.wilcoxon(np.array([1.0, 1.0, 1.0])) == 0.25  # 2 of 8 patterns are as far out
    assert statistics.wilcoxon(np.zeros(4)) == 1.0
    assert statistics.wilcoxon(np.array([0.0, 1.0])) == 1.0


def test_binary_fractions_do_not_hide_ties():
    theirs = dict(enumerate([94.6, 93.2, 94.8, 94.6, 97.0, 90.6, 92.6, 92.8]))
    ours = dict(enumerate([94.4, 93.4, 95.0, 94.8, 97.2, 90.4, 92.8, 93.0]))  # 0.2 up six times, 0.2 down twice
    values = statistics.pair_by_seed(ours, theirs)
    assert values.tolist() == [-0.2, 0.2, 0.2, 0.2, 0.2, -0.2, 0.2, 0.2]
    assert statistics.wilcoxon(values) == tied_p(values) == pytest.approx(0.289, abs=1e-3)
    noisy = np.array([ours[seed] - theirs[seed] for seed in ours])
    assert statistics.wilcoxon(noisy) == pytest.approx(0.031, abs=1e-3)  # the ranks of rounding errors


def tied_p(values: np.ndarray) -> float:
    """The exact p, by trying every pattern of signs on the tied ranks."""
    ranks = stats.rankdata(np.abs(values))
    seen = abs((np.sign(values) * ranks).sum())
    sums = [abs(np.dot(signs, ranks)) for signs in itertools.product((-1, 1), repeat=len(ranks))]
    return float(np.mean(np.array(sums) >= seen))


def test_a_verdict_needs_mean_and_ranks_to_agree():
    # Seven small gains and one loss that outweighs them: the mean says worse, the ranks say better.
    base = [90.0] * 24
    gains = [0.1 + 0.01 * i for i in range(23)] + [-40.0]
    found = made({("random", 60): base, ("risky", 60): [round(v + g, 6) for v, g in zip(base, gains, strict=True)]})
    (row,) = statistics.differences(found, "random")
    assert row.holm < 0.05
    assert row.mean < 0 < row.ranks
    assert row.verdict == "no difference shown"


def test_the_smallest_p_is_what_all_signs_alike_give():
    for n in range(2, 9):
        p = statistics.wilcoxon(np.arange(1.0, n + 1))
        rows = statistics.differences(made({("a", 9): list(np.arange(1.0, n + 1)), ("b", 9): [0.0] * n}), "b")
        assert f"With {n} pairs the smallest p" in statistics.what_wilcoxon_can_show(rows)
        assert f" is {p:.3g}" in statistics.what_wilcoxon_can_show(rows)


def test_one_pair_and_one_comparison_are_singular():
    (row,) = statistics.differences(made({("random", 60): [90.0], ("a", 60): [91.0]}), "random")
    assert statistics.what_wilcoxon_can_show([row]).startswith("With 1 pair the smallest p")
    assert "corrected for 1 comparison it can" in statistics.what_wilcoxon_can_show([replace(row, n=8)])


def test_holm_by_hand():
    assert statistics.holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert statistics.holm([0.9, 0.8]) == [1.0, 1.0]
    assert statistics.holm([]) == []


def test_the_interval_is_students():
    values = np.array([1.0, 2.0, 4.0])
    expected = stats.t.interval(0.95, 2, values.mean(), stats.sem(values))
    assert statistics.interval(values) == pytest.approx(expected)
    assert statistics.interval(values[:1]) == (-math.inf, math.inf)


def test_differences_pair_by_seed_and_not_by_position():
    runs = [Result("random", 60, 9, s, "done", a, 1, 1, 60) for s, a in ((1, 50.0), (2, 60.0))]
    runs += [Result("max-direct", 60, 9, s, "done", a, 1, 1, 60) for s, a in ((3, 99.0), (2, 61.0))]
    (row,) = statistics.differences(Results(tuple(runs)), "random")
    assert (row.n, row.mean) == (1, 1.0)


def test_a_clear_difference_is_shown_and_a_small_one_is_not():
    base = [90.0 + i for i in range(8)]
    found = made(
        {
            ("random", 60): base,
            ("better", 60): [v + 1 + 0.1 * i for i, v in enumerate(base)],
            ("worse", 60): [v - 1 - 0.1 * i for i, v in enumerate(base)],
            ("same", 60): [v + (-1) ** i for i, v in enumerate(base)],
        }
    )
    verdicts = {row.method: row.verdict for row in statistics.differences(found, "random")}
    assert verdicts == {"better": "better", "worse": "worse", "same": "no difference shown"}


def test_five_seeds_can_only_hint():
    found = made({("random", 60): [90.0] * 5, ("max-direct", 60): [91.0, 91.1, 91.2, 91.3, 91.4]})
    (row,) = statistics.differences(found, "random")
    assert row.verdict == "higher, not confirmed"
    assert "cannot show a difference at 0.05" in statistics.what_wilcoxon_can_show([row])


def test_supervised_is_compared_although_it_sees_fewer_images():
    found = made({("random", 60): [90.0, 91.0]})
    alone = made({("Supervised", 60): [80.0, 80.0]}, total=60)
    rows = statistics.differences(Results((*found.runs, *alone.runs)), "random")
    assert [(row.method, row.mean) for row in rows] == [("Supervised", -10.5)]


def test_the_area_is_the_mean_height_over_log_labels():
    assert statistics.area([100, 1000], [80.0, 90.0]) == pytest.approx(85.0)
    found = made({("a", 100): [80.0, 82.0], ("a", 1000): [90.0, 92.0], ("b", 100): [1.0], ("b", 1000): [1.0]})
    areas = statistics.areas(found)
    assert list(areas["a"].values()) == pytest.approx([85.0, 87.0])
    assert [row[2] for row in summary.curve_areas(found).rows] == ["86.00 ± 1.41", "1.00"]


def test_labels_needed_are_read_between_budgets():
    assert statistics.labels_needed([100, 1000], [80.0, 90.0], 85.0) == pytest.approx(math.sqrt(100_000))
    assert statistics.labels_needed([100, 1000], [80.0, 90.0], 90.0) == pytest.approx(1000)
    assert statistics.labels_needed([100, 1000], [80.0, 90.0], 70.0) == 100
    assert statistics.labels_needed([100, 1000], [80.0, 90.0], 91.0) is None
    assert statistics.labels_needed([10, 20, 40], [80.0, 70.0, 90.0], 85.0) == pytest.approx(20 * 2**0.75)


def test_rounds_worse_than_random_are_counted_per_seed():
    def rounds(method, values):
        return [RoundEnd(method, 30, 9, s, labels, 1, a) for s, labels, a in values]

    found = made({("random", 30): [1.0], ("max-direct", 30): [1.0]})
    rows = rounds("random", [(1, 10, 50), (1, 20, 60), (1, 30, 70)])
    rows += rounds("max-direct", [(1, 10, 40), (1, 20, 59), (1, 30, 71)])
    (counted,) = summary.below_random(Results(found.runs, tuple(rows))).rows
    assert counted == ["max-direct", "1", "1 of 2", "0 of 1"]


def curves_of(**accuracies):
    """Results of methods with one seed per curve over 10, 20 and 40 labels."""
    rows = [
        Result(method, budget, 1_000, seed, "done", accuracy, 1, 100, budget)
        for method, curves in accuracies.items()
        for seed, curve in enumerate(curves)
        for budget, accuracy in zip((10, 20, 40), curve, strict=True)
    ]
    return Results(tuple(rows))


def test_labels_saved_are_read_from_each_seeds_own_curve():
    found = curves_of(random=[(50, 60, 80), (40, 70, 80)], auto=[(60, 80, 90), (60, 80, 90)])
    saved = savings.labels_saved(found, "random", 20)
    reached = 10 * 2**0.5  # seed 1: 70 lies half way, in log labels, between 10 and 20
    assert saved.keys() == {"auto"}
    assert saved["auto"].tolist() == pytest.approx([20 - 10, 20 - reached])


def test_a_curve_that_never_gets_there_counts_as_the_largest_budget():
    found = curves_of(random=[(50, 95, 96)], auto=[(60, 80, 90)])
    assert savings.labels_saved(found, "random", 20)["auto"].tolist() == [20 - 40]


def test_areas_are_compared_seed_by_seed():
    found = curves_of(random=[(50, 60, 80), (40, 70, 80)], auto=[(60, 70, 90), (50, 80, 90)])
    heading, rows = summary.curve_areas(found)[1:3]
    assert heading[-1] == "difference to random"
    assert [row[-1] for row in rows] == ["-", "+10.00 (+10.00 to +10.00)"]


def one_method_goes_further() -> Results:
    found = curves_of(random=[(50, 60, 80), (40, 70, 80)], auto=[(60, 80, 90), (60, 80, 90)], MixMatch=[(50, 60, 80)])
    return Results((*found.runs, Result("MixMatch", 160, 1_000, 0, "done", 95.0, 1, 100, 160)))


def test_a_budget_that_one_method_alone_has_hides_no_comparison():
    found = one_method_goes_further()
    assert [row[-1][0] for row in summary.curve_areas(found).rows] == ["-", "+", "+"]
    assert list(savings.labels_saved(found, "random", 20)) == ["auto", "MixMatch"]
    assert summary.saved(found).heading == ["method", "of 20"]


def test_classes_without_a_label_are_counted_up_to_each_methods_largest_budget():
    rounds = [
        RoundEnd("random", 40, 9, 1, labels=10, step=1, accuracy=50, missed=3),
        RoundEnd("random", 20, 9, 1, labels=10, step=1, accuracy=50, missed=9),
        RoundEnd("MixMatch", 160, 9, 1, labels=160, step=1, accuracy=50, missed=0),
    ]
    found = replace(one_method_goes_further(), rounds=tuple(rounds))
    assert savings.mean_by_labels(found, lambda row: row.missed) == {"random": {10: 3.0}, "MixMatch": {160: 0.0}}
