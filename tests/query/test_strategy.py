import subprocess
import sys

import numpy as np
import pytest

from mma.query import DIVERSITY, STRATEGIES, UNCERTAINTY, Candidates, Diversity, Labeled, Picks, Query, Strategy, names
from mma.query.query import own_strategies
from mma.rng import rng


def test_the_nineteen_names_of_the_paper_are_there():
    paper = {
        f"{m}{aug}-{pick}"
        for m in ("max", "diff2", "entropy")
        for aug in ("", ".aug")
        for pick in ("direct", "kmeans", "infoD")
    }
    assert len({*paper, "random"} & set(names())) == 19
    assert len(names()) == len(set(names())) == len(UNCERTAINTY) * 2 * len(DIVERSITY) + 1 + len(own_strategies())
    assert {"diff2.aug-kmeans", "max-infoD", "entropy.aug-direct", "random"} <= set(names())


def test_parsing_reads_aug_before_it_strips_it():
    assert Query.parse("diff2.aug-kmeans") == Query("diff2", True, "kmeans")
    assert Query.parse("max-infoD") == Query("max", False, "infoD")
    assert Query.parse("random") == Query(None)


@pytest.mark.parametrize(
    ("wrong", "meant"),
    [
        ("diff2.aug-kmean", "diff2.aug-kmeans"),
        ("Diff2-Direct", "diff2-direct"),
        ("diff2.aug", "diff2.aug-direct"),
        ("max-infod", "max-infoD"),
        ("entropi-direct", "entropy-direct"),
        ("radnom", "random"),
        ("random.aug-direct", None),
        ("", None),
        ("zzzzzz", None),
    ],
)
def test_a_wrong_name_is_refused_with_the_right_one(wrong, meant):
    with pytest.raises(ValueError, match=f"No query '{wrong}'") as error:
        Query.parse(wrong)
    if meant is not None:
        assert f"Did you mean '{meant}'?" in str(error.value)


def test_passive_is_explained(refusal):
    with refusal():
        Query.parse("passive")


@pytest.mark.parametrize(
    ("uncertainty", "aug", "diversity"), [("nope", False, "direct"), ("max", False, "nope"), (None, True, "direct")]
)
def test_a_query_that_does_not_exist_cannot_be_made(uncertainty, aug, diversity, refusal):
    with refusal():
        Query(uncertainty, aug, diversity)


def test_what_is_missing_is_named(refusal):
    with refusal():
        Query.parse("max-direct").select(Candidates(np.arange(3)), 1, rng(0))
    probs = np.full((3, 2), 0.5)
    with refusal():
        Query.parse("max-kmeans").select(Candidates(np.arange(3), probs), 1, rng(0))


def test_a_negative_number_is_refused(refusal):
    with refusal():
        Query.parse("random").select(Candidates(np.arange(3)), -1, rng(0))


def test_random_picks_differ_from_seed_to_seed_and_cover_the_pool():
    picks = [tuple(Query.parse("random").select(Candidates(np.arange(100)), 10, rng(seed))) for seed in range(200)]
    assert len(set(picks)) == 200
    assert len({index for pick in picks for index in pick}) == 100


def three() -> Candidates:
    return Candidates(
        np.array([10, 20, 30]), np.array([[0.6, 0.3, 0.1], [0.5, 0.25, 0.25], [0.8, 0.2, 0.0]]), np.eye(3)
    )


@pytest.fixture
def own_entries(monkeypatch):
    """Entries added as user code adds them, and taken out again."""
    monkeypatch.setitem(UNCERTAINTY, "least", lambda probs: 1 - probs.min(axis=1))
    monkeypatch.setitem(
        DIVERSITY, "last-rows", Diversity(pick=lambda scores, features, n, rng: -np.arange(n) + len(scores) - 1)
    )


@pytest.mark.usefixtures("own_entries")
def test_entries_of_user_code_are_queries_at_once(refusal):
    assert Query.parse("least-direct").select(three(), 1, 0).tolist() == [30]
    assert Query.parse("max.aug-last-rows").select(three(), 2, 0).tolist() == [30, 20]
    assert {"least.aug-kmeans", "least-last-rows"} <= set(names())
    assert len(names()) == len(UNCERTAINTY) * 2 * len(DIVERSITY) + 1 + len(own_strategies())
    with refusal():
        Query.parse("laest-infoD")


def test_entries_that_were_taken_out_are_gone(refusal):
    with refusal():
        Query.parse("least-direct")


@pytest.mark.parametrize(
    ("measure", "problem"),
    [
        (
            lambda probs: probs,
            r"'bad' must return one finite score per image, shape \(3,\); it returned shape \(3, 3\)",
        ),
        (lambda probs: probs[:, 0] * np.nan, "with NaN"),
    ],
)
def test_an_own_uncertainty_that_returns_nonsense_is_named(monkeypatch, measure, problem, refusal):
    monkeypatch.setitem(UNCERTAINTY, "bad", measure)
    with refusal():
        Query.parse("bad-direct").select(three(), 1, 0)


@pytest.mark.parametrize("rows", [[0, 0], [0], [0, 3], [-1, 0]])
def test_an_own_diversification_that_picks_nonsense_is_named(monkeypatch, rows, refusal):
    monkeypatch.setitem(DIVERSITY, "bad", Diversity(pick=lambda scores, features, n, rng: np.array(rows)))
    with refusal():
        Query.parse("max-bad").select(three(), 2, 0)


@pytest.mark.parametrize(
    ("rows", "scores", "problem"),
    [
        ([0, 0], [1, 1], "'bad' must pick 2 different rows below 3"),
        ([0.0, 1.0], [1, 1], "'bad' must pick 2 different rows below 3"),
        ([0, 1], [1, np.nan], "'bad' must return one finite score per image.* with NaN"),
        ([0, 1], [1], r"'bad' must return one finite score per image, shape \(2,\); it returned shape \(1,\)"),
    ],
)
def test_an_own_strategy_that_returns_nonsense_is_named(monkeypatch, rows, scores, problem, refusal):
    own = Strategy(lambda candidates, labeled, n, rng: Picks(rows, scores), needs_features=False)
    monkeypatch.setitem(STRATEGIES, "bad", own)
    with refusal():
        Query.parse("bad").select(three(), 2, 0)


def test_an_own_strategy_may_return_lists(monkeypatch):
    own = Strategy(lambda candidates, labeled, n, rng: Picks([2, 0], [2, 1]), needs_features=False)
    monkeypatch.setitem(STRATEGIES, "last", own)
    assert Query.parse("last").select(three(), 2, 0).tolist() == [30, 10]


@pytest.mark.parametrize("seed", [0, 7, np.int64(7), np.uint8(7)])
def test_a_seed_does_for_a_generator(seed):
    pool, query = Candidates(np.arange(50)), Query.parse("random")
    first, again = query.select(pool, 10, seed), query.select(pool, 10, rng=seed)
    assert first.tolist() == again.tolist()
    assert first.tolist() == query.select(pool, 10, int(seed)).tolist()
    assert first.tolist() != query.select(pool, 10, 8).tolist()


@pytest.mark.parametrize("seed", [None, 0.5, "0", True])
def test_what_is_neither_seed_nor_generator_is_refused(seed, refusal):
    with refusal():
        Query.parse("random").select(Candidates(np.arange(3)), 1, seed)


def test_how_many_must_be_a_whole_number(refusal):
    for n in (1.0, "1", True, None, -2):
        with refusal():
            Query.parse("random").select(Candidates(np.arange(3)), n, 0)


def test_a_negative_seed_is_refused(refusal):
    with refusal():
        Query.parse("random").select(Candidates(np.arange(3)), 1, -1)


def test_embeddings_alone_are_a_labeled_set_and_none_is_an_empty_one():
    features = rng(0, "rows").normal(size=(30, 4))
    herding, candidates = Query.parse("herding"), Candidates(np.arange(30), features=features)
    expected = herding.select(candidates, 5, 0, Labeled(features[:3])).tolist()
    assert herding.select(candidates, 5, 0, features[:3]).tolist() == expected
    assert herding.select(candidates, 5, 0, None).tolist() == herding.select(candidates, 5, 0).tolist() != expected


def test_what_is_no_labeled_set_is_refused(refusal):
    for labeled in ((np.ones((2, 2)), np.zeros(2)), np.zeros(3), "three", [["a", "b"]], 5):
        with refusal():
            Query.parse("herding").select(Candidates(np.arange(3), features=np.eye(3)), 1, 0, labeled)


def test_labels_that_no_class_has_are_refused(refusal):
    with refusal():
        Labeled(np.eye(2), np.array([0, -7]))
    with refusal():
        Query.parse("auto").select(Candidates(np.arange(3), P, F), 1, 0, Labeled(F[:1], np.array([50])))


def test_words_are_no_probabilities(refusal):
    with refusal():
        Candidates(np.arange(2), [["0.5", "0.5"], ["1", "0"]])


def test_a_strategy_whose_scores_rise_is_refused(monkeypatch, refusal):
    rising = Strategy(lambda candidates, labeled, n, rng: Picks(np.arange(n), np.arange(n) * 1.0))
    monkeypatch.setitem(STRATEGIES, "rising", rising)
    with refusal():
        Query.parse("rising").select(Candidates(np.arange(3), P, F), 2, 0)


P, F = np.full((3, 2), 0.5), np.ones((3, 2))


@pytest.mark.parametrize(
    ("index", "probs", "features", "message"),
    [
        (np.arange(4), P, F, r"probs have shape \(3, 2\), but with 4 indices"),
        (np.arange(3), P, F[:2], r"features have shape \(2, 2\)"),
        (np.arange(3), P[0], F, "one row per image"),
        (np.arange(3), P[:, :0], F, "one row per image"),
        (np.array([1, 2, 2]), P, F, "names an image twice"),
        (np.arange(3.0), P, F, "whole numbers"),
        (np.arange(4).reshape(2, 2), P, F, "whole numbers"),
        (np.arange(3), P * 8 - 3, F + 0, "apply softmax first"),
        (np.arange(3), P * 0.9, F, "misses the sum of 1 by 0.1"),
        (np.arange(3), P * np.nan, F, "finite probabilities"),
        (np.arange(3), P * [np.inf, -np.inf], F, "finite probabilities"),
        (np.arange(3), P, F * np.nan, "features hold NaN"),
        (np.arange(3), P, F * [1, np.inf], "features hold NaN"),
        (np.arange(3), P, F * 1e300, "beyond float32"),
    ],
)
def test_candidates_that_mean_nothing_are_refused(index, probs, features, message):
    with pytest.raises(ValueError, match=message):
        Candidates(index, probs, features)


def test_half_precision_is_raised_before_scores_are_computed():
    assert Candidates(np.arange(3), P.astype(np.float16)).probs.dtype == np.float32


@pytest.mark.parametrize(
    ("name", "passes"),
    [
        ("random", 0),
        ("max-direct", 1),
        ("max-kmeans", 1),
        ("max.aug-direct", 2),
        ("max.aug-kmeans", 3),
        ("max.aug-infoD", 3),
    ],
)
def test_the_forward_passes_of_a_query_are_counted(name, passes):
    assert Query.parse(name).looks == passes


def test_whole_numbers_are_taken_as_probabilities():
    assert Candidates(np.arange(2), np.eye(2, dtype=np.int64), np.eye(2, dtype=np.int8)).features.dtype == np.float32


def test_the_room_imports_no_torch():
    code = "import sys, mma.query; sys.exit('torch' in sys.modules or 'sklearn' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
