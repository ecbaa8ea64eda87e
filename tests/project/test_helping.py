"""Is asking helping here? Queried against random labels, on the project's own data."""

from __future__ import annotations

import numpy as np
import pytest

from mma.project.helping import LabeledRows, compare, split_by_group

CLASSES, WIDTH = 4, 60


def project(good, seed=0, queried=160, random=60, audit=120):
    """Rows of noisy points around class centres. Good queries are clean images, bad ones are of one class alone."""
    draw = np.random.default_rng(seed)
    count = queried + random + audit
    labels = draw.integers(0, CLASSES, count)
    x = 2.0 * np.eye(CLASSES, WIDTH)[labels] + draw.standard_normal((count, WIDTH))
    rows = np.arange(count)
    if good == "good":
        x[:queried] = 2.0 * np.eye(CLASSES, WIDTH)[labels[:queried]] + 0.01 * draw.standard_normal((queried, WIDTH))
    if good == "bad":
        labels[:queried] = np.where(rows[:queried] % 40 == 0, labels[:queried], 0)
        x[:queried] = 2.0 * np.eye(CLASSES, WIDTH)[labels[:queried]] + draw.standard_normal((queried, WIDTH))
    parts = np.split(rows, [queried, queried + random])
    groups = {int(row): str(row) for row in rows}
    return LabeledRows(*parts, dict(enumerate(labels.tolist())), groups), nearest_centre(x, labels)


def nearest_centre(x, labels):
    def fit(train, test):
        known = np.unique(labels[train])
        centres = np.stack([x[train][labels[train] == k].mean(0) for k in known])
        return known[((x[test][:, None] - centres) ** 2).sum(2).argmin(1)]

    return fit


def test_labels_that_teach_more_are_said_to_save_some():
    found = compare(*project("good"))
    assert found.answer == "saved"
    assert found.saved > 0
    assert f"saved about {found.saved} labels" in found.sentence
    assert found.low > 0


def test_labels_that_teach_less_switch_to_coverage():
    found = compare(*project("bad"))
    assert found.answer == "worse"
    assert found.fallback
    assert "switching to coverage" in found.sentence


def test_labels_drawn_alike_show_no_difference_in_nearly_every_project():
    answers = [compare(*project("alike", seed=seed)).answer for seed in range(30)]
    assert answers.count("no difference shown yet") >= 28


@pytest.mark.parametrize("few", [{"queried": 30}, {"random": 0, "audit": 60}, {"audit": 49}])
def test_too_few_labels_are_not_compared(few):
    found = compare(*project("good", **few))
    assert found.answer == "no difference shown yet"
    assert "not compared yet" in found.sentence
    assert found.difference is None


def test_the_halves_of_the_audit_share_no_near_duplicates():
    audit = np.arange(100)
    groups = {row: str(row // 5) for row in range(100)}
    one, other = split_by_group(audit, groups, seed=3)
    assert not {groups[int(r)] for r in one} & {groups[int(r)] for r in other}
    assert len(one) + len(other) == 100
    assert len(one) == 50


def test_no_model_is_tested_on_what_it_trained_on():
    rows, fit = project("alike")
    overlaps = []

    def watched(train, test):
        overlaps.append(len(np.intersect1d(train, test)))
        return fit(train, test)

    compare(rows, watched)
    assert overlaps
    assert not any(overlaps)
