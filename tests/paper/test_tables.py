import re
import subprocess
import sys

import numpy as np

from mma import paper


def cell(experiment, method, labels, total=None):
    rows = [r for r in paper.table(experiment) if (r.method, r.labels) == (method, labels) and total in (None, r.total)]
    assert len(rows) == 1
    return rows[0].accuracy, rows[0].std


def test_every_table_is_there_whole():
    assert {name: len(paper.table(name)) for name in paper.experiments()} == {
        "budgets-cifar10": 77,
        "budgets-cifar100": 32,
        "budgets-cifar100-grow100": 32,
        "budgets-svhn": 32,
        "labeled-vs-unlabeled-cifar10": 40,
        "labeled-vs-unlabeled-cifar100": 14,
        "labeled-vs-unlabeled-svhn-extra": 28,
    }


def test_cells_from_all_corners():
    assert cell("budgets-cifar10", "Supervised", 500, 500) == (60.72, 1.04)
    assert cell("budgets-cifar10", "MixMatch", 16000, 50000) == (94.99, 0.15)
    assert cell("budgets-cifar10", "max-infoD", 4000) == (95.07, 0.07)
    assert cell("budgets-cifar100", "MixMatch", 4000) == (67.72, 0.79)
    assert cell("budgets-cifar100", "diff2.aug-infoD", 10000) == (74.94, 0.30)
    assert cell("budgets-cifar100-grow100", "diff2.aug-kmeans", 5000) == (67.78, 3.79)
    assert cell("budgets-svhn", "diff2.aug-infoD", 2000, 73257) == (96.28, 1.60)
    assert cell("labeled-vs-unlabeled-cifar10", "diff2.aug-direct", 4000, 5000) == (80.33, 0.71)
    assert cell("labeled-vs-unlabeled-cifar100", "Supervised", 10000, 10000) == (65.93, 0.34)
    assert cell("labeled-vs-unlabeled-svhn-extra", "diff2.aug-kmeans", 500, 200000) == (96.55, 1.56)
    assert cell("labeled-vs-unlabeled-svhn-extra", "diff2.aug-kmeans", 4000, 604388) == (97.98, 0.05)


def test_the_two_kinds_of_tables_agree_where_they_overlap():
    both = (
        ("cifar10", "diff2.aug-direct", (500, 1000, 2000, 4000)),
        ("cifar100", "diff2.aug-kmeans", (4000, 5000, 8000, 10000)),
    )
    for name, method, budgets in both:
        for labels in budgets:
            wide, by_total = (
                cell(f"{kind}-{name}", method, labels, 50000) for kind in ("budgets", "labeled-vs-unlabeled")
            )
            assert wide == by_total


def test_the_papers_standard_deviation_divides_by_the_number_of_runs():
    runs = [97.26, 97.39, 97.26, 93.42, 97.40]  # Paper: footnote of the SVHN+Extra table
    mean, std = cell("labeled-vs-unlabeled-svhn-extra", "diff2.aug-kmeans", 500, 200000)
    assert (round(np.mean(runs), 2), round(np.std(runs), 2)) == (mean, std)


def test_methods_are_named_as_in_the_paper():
    methods = {row.method for name in paper.experiments() for row in paper.table(name)}
    query = re.compile(r"(max|diff2)(\.aug)?-(direct|kmeans|infoD)|random")
    named = {"Supervised", "MixMatch", "MeanTeacher", "VAT", "PiModel", "PseudoLabel"}
    assert all(method in named or query.fullmatch(method) for method in methods)


def test_an_unknown_table_is_refused_with_a_guess(refusal):
    with refusal():
        paper.table("budget-cifar10")


def test_the_tables_need_nothing_but_python():
    code = "import sys, mma.paper; mma.paper.table('budgets-svhn'); sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
