import pytest

from mma.cost import open_table, paper_sources
from tests.each import each

GOOD = "labels,total,accuracy,seed\n10,100,57,0\n10,200,62,0\n20,100,59,0\n20,200,64,0\n"


def written(tmp_path, text, name="runs.csv"):
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return str(path)


def test_the_papers_own_tables():
    assert paper_sources() == ["paper:cifar10", "paper:cifar100", "paper:svhn-extra"]
    table = open_table("paper:svhn-extra")
    assert table.accuracy.shape == (7, 4)
    assert table.best() == (4000, 604_388, 97.98)
    assert (table.freedom == 4).all()


def test_a_csv_of_runs_becomes_means(tmp_path):
    again = "10,100,59,1\n10,200,64,1\n20,100,61,1\n20,200,66,1\n"
    table = open_table(written(tmp_path, GOOD + again))
    assert table.accuracy.tolist() == [[58, 60], [63, 65]]
    assert table.name == "runs.csv"


@pytest.mark.parametrize(
    "text",
    [
        "\ufeff" + GOOD,
        GOOD.replace("\n", "\r\n"),
        GOOD.replace(",", ", "),
        "note,accuracy,total,labels\nx,57,100,10\n,62,200,10\n,59,100,20\n,64,200,20\n",
        GOOD.replace("100", "1e2"),
        GOOD + "\n\n",
    ],
)
def test_harmless_variations_are_read_the_same(tmp_path, text):
    assert open_table(written(tmp_path, text)).accuracy.tolist() == [[57, 59], [62, 64]]


def test_a_folder_with_the_file_of_a_grid(tmp_path):
    written(tmp_path, GOOD, "labeled-vs-unlabeled.csv")
    assert open_table(str(tmp_path)).labels.tolist() == [10, 20]


@each(
    text=[
        GOOD.replace("62", ""),
        GOOD.replace("10,200,62,0", "10,200"),
        GOOD.replace("10,200", "10,many"),
        GOOD.replace("62", "n\x1b[2Ja"),
        GOOD.replace("62", "nan"),
        GOOD.replace("62", "inf"),
        GOOD.replace("200,62", "200.5,62"),
        "accuracy\n57\n",
        GOOD.replace(",", ";"),
        GOOD.replace("total", "unlabeled"),
        "",
        "labels,total,accuracy,seed\n",
        GOOD.replace("57", "0.57").replace("62", "0.62").replace("59", "0.59").replace("64", "0.64"),
        GOOD.replace("57", "570"),
        GOOD.replace("57", "-1"),
        GOOD.replace("10,100", "1000,100"),
        GOOD.replace("10,100", "0,100"),
        "labels,total,accuracy\n10,100,57\n10,200,62\n",
        "labels,total,accuracy\n10,100,57\n20,100,62\n",
        GOOD + "10,100,58,0\n",
        b"labels,total,accuracy\n\xff\xfe,1,2\n",
    ]
)
def test_a_csv_that_means_nothing_is_refused_with_the_place_and_the_remedy(tmp_path, text, refusal):
    with refusal():
        open_table(written(tmp_path, text))


@each(source=["paper:cifar", "paper:svhn", "cifar10", "no/such.csv"])
def test_a_source_that_does_not_exist(source, refusal):
    with refusal():
        open_table(source)


def test_a_folder_that_is_no_grid(tmp_path, refusal):
    with refusal():
        open_table(str(tmp_path))
