"""The front door for array users keeps scikit-learn's contract, and learns from images without a label."""

from __future__ import annotations

from sklearn.utils.estimator_checks import parametrize_with_checks
from mma.classifier import MixMatchClassifier

def expected(estimator):
    return {}

@parametrize_with_checks([MixMatchClassifier(steps=60, filters=16)], expected_failed_checks=expected)
def test_scikit_learn_contract(estimator, check):
    check(estimator)
