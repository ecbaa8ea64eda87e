"""`auto` in the loop of scikit-activeml: their classifier, their protocol, our choice of what to label.

pip install '.[duel]' && python docs/examples/skactiveml_auto.py
"""

import numpy as np
from skactiveml.classifier import SklearnClassifier
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression

from mma.query.skactiveml import MmaQuery


def main(rounds: int = 10, query: str = "auto", seed: int = 0) -> list[float]:
    """Label ten digits in each round; return the accuracy on the others after each."""
    X, answers = load_digits(return_X_y=True)
    y = np.full(len(X), np.nan)  # their mark of a missing label
    model = SklearnClassifier(LogisticRegression(max_iter=1_000), classes=np.unique(answers))
    strategy, accuracies = MmaQuery(query, random_state=seed), []
    for _ in range(rounds):  # the first round has no label yet: auto covers the pool
        asked = strategy.query(X=X, y=y, clf=model, batch_size=10)
        y[asked] = answers[asked]
        rest = np.isnan(y)
        accuracies.append(float(np.mean(model.fit(X, y).predict(X[rest]) == answers[rest])))
    return accuracies


if __name__ == "__main__":
    for name in ("random", "auto"):
        print(name, " ".join(f"{100 * accuracy:.1f}" for accuracy in main(query=name)))
