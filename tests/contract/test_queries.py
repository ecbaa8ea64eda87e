"""Every query must keep these promises. The tables are read, so a new entry is tested the moment it is listed."""

import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mma.query import DIVERSITY, STRATEGIES, UNCERTAINTY, Candidates, Labeled, Query, names
from mma.rng import rng
from tests.each import each

NOTHING = Labeled()
every_query = each(name=names())
every_strategy = each(name=list(STRATEGIES))
every_measure = each(measure=list(UNCERTAINTY))


def softmax(logits):
    p = np.exp(logits - logits.max(axis=1, keepdims=True))
    return p / p.sum(axis=1, keepdims=True)


def pool(n=120, classes=10, dim=6, seed=0, dtype=np.float64):
    draw = rng(seed, "pool")
    probs = softmax(draw.normal(size=(n, classes)) * 2)
    features = np.abs(draw.normal(size=(n, dim))) + draw.integers(0, 3, size=(n, 1))
    index = draw.permutation(10 * n)[:n]
    return Candidates(index, probs.astype(dtype), features.astype(dtype))


def some_labeled(seed=1, dim=6):
    """A labeled set for `pool`, with an image that people could not tell."""
    known = pool(n=30, dim=dim, seed=seed)
    labels = np.append(np.arange(29) % 10, -1)
    return Labeled(known.features, labels)


def check(name, candidates, n, seed=0, labeled=NOTHING):
    """What holds for any candidates whatever; returns the selection."""
    query = Query.parse(name)
    chosen = query.selection(candidates, n, rng(seed, "query"), labeled)
    wanted = min(n, len(candidates))
    assert chosen.index.shape == chosen.scores.shape == (wanted,)
    assert chosen.index.dtype == np.int64
    assert len(set(chosen.index.tolist())) == wanted
    assert set(chosen.index.tolist()) <= set(candidates.index.tolist())
    assert np.isfinite(chosen.scores).all()
    assert (np.diff(chosen.scores) <= 0).all(), "the most wanted come first"
    if query.strategy is None:
        scores = query.scores(candidates)
        assert scores.shape == (len(candidates),)
        assert np.isfinite(scores).all()
        rows = {index: row for row, index in enumerate(candidates.index.tolist())}
        np.testing.assert_array_equal(chosen.scores, scores[[rows[index] for index in chosen.index.tolist()]])
    else:
        assert chosen.why, "a strategy says why"
    again = query.select(candidates, n, rng(seed, "query"), labeled)
    np.testing.assert_array_equal(again, chosen.index, "repeatable")
    return chosen


@every_query
@each(dtype=[np.float16, np.float32, np.float64])
@each(n=[0, 1, 7, 50, 119, 120, 121, 500])
def test_exactly_n_distinct_rows_finite_and_repeatable(name, n, dtype):
    check(name, pool(dtype=dtype), n)


@every_query
@each(n=[0, 1, 7, 120, 121])
def test_a_labeled_set_is_taken_by_every_query(name, n):
    check(name, pool(), n, labeled=some_labeled())


@every_strategy
def test_a_labeled_set_of_another_width_is_refused(name, refusal):
    if Query.parse(name).needs_labeled:
        with refusal():
            Query.parse(name).select(pool(), 5, rng(0), some_labeled(dim=5))


@every_strategy
def test_a_strategy_has_no_scores_of_single_images(name, refusal):
    with refusal():
        Query.parse(name).scores(pool())


@every_query
def test_a_name_is_given_back(name):
    assert str(Query.parse(name)) == name
    assert Query.parse(name).views == (2 if ".aug" in name else 1)


@every_query
@each(n=[0, 1, 2])
def test_a_pool_of_one(name, n):
    check(name, pool(n=1), n)


@every_query
def test_an_empty_pool(name):
    check(name, Candidates(np.arange(0), np.zeros((0, 3)), np.zeros((0, 2))), 5)


@every_query
def test_one_hot_probabilities(name):
    candidates = pool()
    one_hot = np.eye(10)[np.arange(120) % 10]
    chosen = check(name, Candidates(candidates.index, one_hot, candidates.features), 30)
    assert (chosen.scores == 0).all() or name in STRATEGIES


@every_query
def test_one_uncertain_image_among_certain_ones_comes_first(name):
    if not Query.parse(name).needs_probs or name in STRATEGIES:
        return
    candidates = pool()
    probs = np.eye(10)[np.arange(120) % 10]
    probs[33] = 0.1
    chosen = check(name, Candidates(candidates.index, probs, candidates.features), 30)
    assert chosen.index[0] == candidates.index[33]
    assert chosen.scores[0] > 0


@every_query
def test_all_ties_are_not_biased_towards_low_rows(name):
    n = 200
    candidates = Candidates(np.arange(n), np.full((n, 4), 0.25), np.ones((n, 3)))
    picked = np.concatenate([check(name, candidates, 40, seed=seed).index for seed in range(10)])
    assert (picked < n // 2).mean() == pytest.approx(0.5, abs=0.1)


@every_query
@each(value=[0.0, 1.0, -3.0, 1e30, 1e-30])
def test_features_all_the_same(name, value):
    candidates = pool()
    check(name, Candidates(candidates.index, candidates.probs, np.full((120, 5), value)), 30)


@every_query
def test_features_with_few_distinct_rows_some_of_them_zero(name):
    candidates = pool()
    features = np.eye(5)[np.arange(120) % 5] * (np.arange(120)[:, None] % 3)
    check(name, Candidates(candidates.index, candidates.probs, features), 30)


@every_query
def test_a_single_class(name):
    candidates = pool()
    chosen = check(name, Candidates(candidates.index, np.ones((120, 1)), candidates.features), 30)
    assert (chosen.scores == 0).all() or name in STRATEGIES


@every_query
def test_inputs_are_left_as_they_were_and_may_be_read_only(name):
    candidates = pool(dtype=np.float32)
    before = candidates.probs.copy(), candidates.features.copy()
    candidates.probs.flags.writeable = candidates.features.flags.writeable = False
    check(name, candidates, 30)
    np.testing.assert_array_equal(candidates.probs, before[0])
    np.testing.assert_array_equal(candidates.features, before[1])


@every_query
def test_a_query_runs_on_what_it_says_it_needs(name):
    query, full = Query.parse(name), pool()
    given_ = Candidates(
        full.index, full.probs if query.needs_probs else None, full.features if query.needs_features else None
    )
    np.testing.assert_array_equal(query.select(given_, 9, rng(0)), query.select(full, 9, rng(0)))


DRAWN = ("kmeans", "power", "badge")


@each(name=[n for n in names() if Query.parse(n).needs_probs and not n.endswith(DRAWN)])
def test_the_order_of_the_candidates_does_not_matter(name):
    # k-means starts from random rows, so its clusters may differ; some picks are drawn at random. All others must not care.
    full = pool()
    shuffle = rng(5).permutation(120)
    shuffled = Candidates(full.index[shuffle], full.probs[shuffle], full.features[shuffle])
    first, second = (Query.parse(name).select(each, 30, rng(1)) for each in (full, shuffled))
    np.testing.assert_array_equal(first, second)


@each(name=[n for n in names() if ".aug" not in n])
@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_any_probabilities_and_features(name, data):
    n, classes, dim = (data.draw(st.integers(1, high)) for high in (40, 6, 4))
    numbers = st.floats(-30, 30, width=32)
    logits = data.draw(st.lists(numbers, min_size=n * classes, max_size=n * classes))
    features = data.draw(st.lists(numbers, min_size=n * dim, max_size=n * dim))
    probs = softmax(np.array(logits).reshape(n, classes) * 10)
    candidates = Candidates(np.arange(n)[::-1].copy(), probs, np.array(features).reshape(n, dim))
    check(name, candidates, data.draw(st.integers(0, 45)))


@every_measure
@each(dtype=[np.float32, np.float64])
@each(classes=[1, 2, 10])
def test_one_hot_rows_score_exactly_zero(measure, dtype, classes):
    scores = UNCERTAINTY[measure](np.eye(classes, dtype=dtype))
    assert (scores == 0).all()
    assert not np.signbit(scores).any()


@every_measure
def test_larger_is_less_sure(measure):
    sure = np.linspace(1, 1 / 3, 20)[:, None]
    probs = np.hstack([sure, (1 - sure) / 2, (1 - sure) / 2])
    assert (np.diff(UNCERTAINTY[measure](probs)) > 0).all()


@every_measure
@settings(max_examples=50, deadline=None)
@given(logits=st.lists(st.lists(st.floats(-1000, 1000), min_size=4, max_size=4), min_size=1, max_size=10))
def test_scores_are_finite_never_negative_and_blind_to_the_order_of_classes(measure, logits):
    probs = softmax(np.array(logits))
    scores = UNCERTAINTY[measure](probs)
    assert np.isfinite(scores).all()
    assert (scores >= 0).all()
    np.testing.assert_allclose(UNCERTAINTY[measure](probs[:, ::-1].copy()), scores, atol=1e-12)


@pytest.mark.slow
@each(diversity=list(DIVERSITY))
def test_fifty_thousand_images_need_less_than_a_gigabyte(diversity):
    n, draw = 50_000, rng(0, "scale")
    probs = draw.dirichlet(np.full(10, 0.3), n).astype(np.float32)
    features = draw.standard_normal((n, 128), dtype=np.float32)
    tracemalloc.start()
    try:
        chosen = Query("entropy", diversity=diversity).select(Candidates(np.arange(n), probs, features), 50, rng(0))
        assert tracemalloc.get_traced_memory()[1] < 200e6, "far below a gigabyte: one float32 copy is 26 MB"
    finally:
        tracemalloc.stop()
    assert len(set(chosen.tolist())) == 50
