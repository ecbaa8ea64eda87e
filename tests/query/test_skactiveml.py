from pathlib import Path

import numpy as np
import pytest

from mma.errors import UserError
from mma.query import Candidates, Labeled, Query
from mma.query.coverage import RADIUS, space_of
from mma.query.query import as_generator
from mma.query.strategies import spread_gradients, typicality
from mma.query.uncertainty import diff2
from tests.each import each

pool = pytest.importorskip("skactiveml.pool")
classifier = pytest.importorskip("skactiveml.classifier")
typi_clust = pytest.importorskip("skactiveml.pool._typi_clust")
utils = pytest.importorskip("skactiveml.utils")
from sklearn.linear_model import LogisticRegression  # noqa: E402

from mma.query.skactiveml import MISSING, MmaQuery  # noqa: E402

RIVALS = ("DropQuery", "MaxHerding", "TypiClust", "ProbCover", "Badge", "Falcun", "CoreSet")


def blobs(count=120, classes=3, width=6, seed=0):
    draw = np.random.default_rng(seed)
    labels = np.arange(count) % classes
    points = draw.normal(size=(classes, width))[labels] * 2 + draw.normal(size=(count, width))
    points = space_of(points.astype(np.float32), as_generator(0))(points.astype(np.float32))
    probs = draw.dirichlet(np.ones(classes), count)
    return points, labels, probs


@each(rival=RIVALS)
def test_their_strategies_pick_as_queries_of_ours_the_same_for_the_same_seed(rival):
    points, labels, probs = blobs()
    query = Query.parse(f"skactiveml:{rival}")
    free, known = Candidates(np.arange(10, 120), probs[10:], points[10:]), Labeled(points[:10], labels[:10])
    first = query.selection(free, 7, 3, known)
    assert len(set(first.index)) == 7
    assert first.index.min() >= 10
    assert np.array_equal(first.index, query.selection(free, 7, 3, known).index)
    assert rival in first.why
    assert str(query) == f"skactiveml:{rival}"


def test_images_nobody_could_tell_are_never_asked_about_again_by_theirs():
    points, labels, probs = blobs()
    known = Labeled(points[:10], np.where(np.arange(10) < 5, labels[:10], -1))
    for rival in RIVALS:
        picked = Query.parse(f"skactiveml:{rival}").select(
            Candidates(np.arange(10, 120), probs[10:], points[10:]), 5, 0, known
        )
        assert picked.min() >= 10


def test_a_strategy_that_is_not_theirs_is_refused_with_the_nearest_one():
    with pytest.raises(UserError, match=r"no strategy 'TypiClus'\. Did you mean 'TypiClust'"):
        Query.parse("skactiveml:TypiClus")


def test_a_strategy_that_needs_more_than_a_model_is_refused():
    with pytest.raises(
        UserError, match=r"skactiveml:QueryByCommittee needs more than a model and embeddings \(ensemble\)"
    ):
        Query.parse("skactiveml:QueryByCommittee")


# Their code as an oracle for ours, where the definitions agree.


@each(known=(0, 8), seed=(1, 2))
def test_herding_picks_what_their_maxherding_picks_with_our_radius(known, seed):
    points, _, _ = blobs(200, seed=seed)
    theirs = pool.MaxHerding(missing_label=MISSING, random_state=0, metric_dict={"gamma": 1 / RADIUS**2})
    y, free = np.where(np.arange(200) < known, 0, MISSING), points[known:]
    labeled = Labeled(points[:known], y[:known]) if known else Labeled()
    ours = Query.parse("herding").select(Candidates(np.arange(known, 200), features=free), 12, 0, labeled)
    centred = space_of(free, as_generator(0))  # ours centres on the candidates, theirs takes what it is given
    X = np.concatenate([centred(points[:known]), centred(free)])
    assert theirs.query(X, y, batch_size=12).tolist() == ours.tolist()


def test_our_kernel_is_narrower_than_theirs_by_default():
    """Theirs: 1 / dimensions, so that on vectors of length one nearly everything covers everything. Ours: radius 1."""
    points, _, _ = blobs(200)
    y = np.full(200, MISSING)
    default = pool.MaxHerding(missing_label=MISSING, random_state=0).query(points, y, batch_size=12)
    ours = pool.MaxHerding(missing_label=MISSING, random_state=0, metric_dict={"gamma": 1 / RADIUS**2})
    assert default.tolist() != ours.query(points, y, batch_size=12).tolist()


def test_typicality_ranks_images_as_theirs_does_with_our_neighbours():
    """Theirs takes 5 neighbours and ours 20, as the paper; ours counts the image itself, which changes no order."""
    points, _, _ = blobs(200)
    theirs = typi_clust._typicality(points, np.arange(200), 20)
    assert np.argsort(-typicality(points)).tolist()[:150] == np.argsort(-theirs).tolist()[:150]


def test_badge_begins_with_the_largest_gradient_as_theirs_and_measures_the_same_distances():
    points, labels, probs = blobs()
    errors = probs - np.eye(3)[probs.argmax(1)]
    gradients = (errors[:, :, None] * points[:, None, :]).reshape(len(points), -1)
    sizes = np.einsum("nd,nd->n", gradients, gradients)
    ours = spread_gradients(errors.astype(np.float32), points, sizes.astype(np.float32), 2, as_generator(0))
    y = np.where(np.arange(120) < 3, labels, MISSING)
    model = classifier.SklearnClassifier(LogisticRegression(), classes=[0, 1, 2], missing_label=MISSING).fit(
        points[:3], labels[:3]
    )
    model.predict_proba = lambda X: probs
    _, utilities = pool.Badge(missing_label=MISSING, random_state=0).query(
        points, y, model, fit_clf=False, candidates=points, batch_size=2, return_utilities=True
    )
    assert utilities[0].argmax() == sizes.argmax() == ours[0]
    squares = ((gradients - gradients[ours[0]]) ** 2).sum(1)
    nearest = np.minimum(squares, sizes)  # theirs keeps the distance to the origin as well: documented, and not ours
    assert np.allclose(np.nan_to_num(utilities[1]), nearest / nearest.sum(), atol=1e-6)


# And ours as a strategy of theirs.


@each(query=("auto", "herding", "diff2-direct", "random"))
def test_a_query_of_ours_works_where_theirs_do(query):
    points, labels, _ = blobs()
    y = np.full(len(points), np.nan)
    model = classifier.SklearnClassifier(LogisticRegression(), classes=[0, 1, 2])
    strategy = MmaQuery(query, random_state=1)
    for _ in range(3):
        if query == "diff2-direct" and not utils.is_labeled(y).any():
            y[:3] = labels[:3]
        picked, worth = strategy.query(X=points, y=y, clf=model, batch_size=5, return_utilities=True)
        assert np.isnan(y[picked]).all()
        assert worth.shape == (5, len(points))
        assert np.isfinite(worth[np.arange(5), picked]).all()
        y[picked] = labels[picked]
    assert utils.is_labeled(y).sum() >= 15


def test_a_query_of_ours_asks_only_among_their_candidates_and_repeats_itself():
    points, labels, _ = blobs()
    y = np.where(np.arange(120) < 9, labels, np.nan)
    model = classifier.SklearnClassifier(LogisticRegression(), classes=[0, 1, 2])
    asked = [
        MmaQuery("auto", random_state=2).query(points, y, model, candidates=[50, 60, 70, 80], batch_size=2)
        for _ in "ab"
    ]
    assert set(asked[0]) <= {50, 60, 70, 80}
    assert asked[0].tolist() == asked[1].tolist()


def test_what_ours_asks_about_by_margin_is_what_theirs_asks_about():
    points, labels, _ = blobs()
    y = np.where(np.arange(120) < 9, labels, np.nan)
    model = classifier.SklearnClassifier(LogisticRegression(), classes=[0, 1, 2]).fit(points, y)
    ours = MmaQuery("diff2-direct", random_state=0).query(points, y, model, fit_clf=False, batch_size=6)
    theirs = pool.UncertaintySampling(method="margin_sampling", random_state=0).query(
        points, y, model, fit_clf=False, batch_size=6
    )
    assert ours.tolist() == theirs.tolist()
    assert ours.tolist() == (np.argsort(-diff2(model.predict_proba(points[9:])))[:6] + 9).tolist()


def test_the_example_for_their_users_beats_random(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "docs" / "examples"))
    import skactiveml_auto

    auto, random = skactiveml_auto.main(4), skactiveml_auto.main(4, "random")
    assert sum(auto) > sum(random)
    assert auto[-1] > 0.8
