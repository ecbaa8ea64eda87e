import json

import pytest
import typer
from typer.testing import CliRunner

from mma.cli.experiments import cost
from mma.cost import Prices, ask, open_table
from mma.cost.plots import cost_figure

app = typer.Typer()
app.command()(cost)


def run(*arguments):
    return CliRunner().invoke(app, [str(a) for a in arguments], catch_exceptions=True)


def test_json_has_the_papers_number():
    result = run("paper:cifar10", "--target", 91.69, "--json")
    assert result.exit_code == 0
    found = json.loads(result.stdout)
    target = found["targets"][0]
    need = next(n for n in target["needs"] if n["labels"] == 1000)
    assert (need["total"], need["unlabeled"], need["status"]) == (39_114, 38_114, "reached")
    ratio = target["ratios"][0]
    assert (ratio["fewer"], ratio["more"]) == (500, 1000)
    assert round(ratio["totals"], 1) == 21.8
    assert round(ratio["unlabeled"], 1) == 22.8
    assert ratio["totals_interval"]["high"] is None, "open: half of the draws do not reach it with 500 labels"
    assert (found["draws"], found["level"]) == (1000, 0.9)


def test_the_table_fits_a_terminal_and_names_findings():
    result = run("paper:svhn-extra", "--target", 93.7, "--target", 97.5)
    assert result.exit_code == 0
    assert max(map(len, result.stdout.splitlines())) <= 120
    assert "below 0 on totals: 1,000 labels need more images than 500" in result.stdout
    assert "not reached" in result.stdout
    assert "To reach 97.5 %" in result.stdout


def test_prices_and_a_place_give_advice():
    result = run("paper:cifar10", "--target", 91.69, "--label-price", 1, "--image-price", 0.1, "--at", "500,20000")
    assert result.exit_code == 0
    assert "cheapest 2,000 labels, 28,377 images in total: 2,337.70 more" in result.stdout
    assert "next 5,000 more images for 500.00: +4.49 points" in result.stdout


def test_the_figure_starts_from_the_same_place_as_the_text(tmp_path):
    options = ["--target", 91.69, "--label-price", 1, "--image-price", 0.1, "--at", "500,40000"]
    result = run("paper:cifar10", *options, "--plot", tmp_path / "p.svg")
    assert "cheapest 1,000 labels, 40,000 images in total: 500.00 more" in result.stdout
    table, prices = open_table("paper:cifar10"), Prices(1, 0.1)
    found = ask(table, [91.69], prices=prices).targets
    cost_figure(tmp_path / "same.svg", table, found, prices, at=(500, 40_000))
    cost_figure(tmp_path / "other.svg", table, found, prices)
    drawn, same, other = ((tmp_path / name).read_text() for name in ("p.svg", "same.svg", "other.svg"))
    assert drawn == same != other


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "No mix reaches 70 % after smoothing. Give a lower target or leave out --isotonic."),
        (["--at", "15,120"], "No mix with 15 labels or more reaches 70 % after smoothing."),
    ],
)
def test_a_target_that_smoothing_puts_out_of_reach_is_said(options, message, tmp_path):
    path = tmp_path / "runs.csv"
    path.write_text("labels,total,accuracy\n10,100,50\n10,200,60\n10,400,58\n20,100,55\n20,200,70\n20,400,68\n")
    prices = ["--target", 70, "--label-price", 1, "--image-price", 0.1, *options]
    result = run(path, *prices, "--isotonic", "--plot", tmp_path / "p.png")
    assert result.exit_code == 0
    assert message in result.stdout
    assert "No mix" not in run(path, *prices).stdout


def test_a_target_that_only_fewer_labels_reach_is_said(tmp_path):
    path = tmp_path / "runs.csv"
    path.write_text("labels,total,accuracy\n10,100,60\n10,200,70\n20,100,50\n20,200,55\n")
    place = ["--target", 70, "--label-price", 1, "--image-price", 0.1, "--at", "15,120"]
    result = run(path, *place, "--plot", tmp_path / "p.png")
    assert result.exit_code == 0
    assert "No mix with 15 labels or more reaches 70 %. Give a lower target.\n" in result.stdout


def test_more_labels_than_measured_are_drawn_without_a_mix(tmp_path):
    place = ["--label-price", 1, "--image-price", 0.1, "--at", "9000,60000"]
    result = run("paper:cifar10", *place, "--plot", tmp_path / "p.svg")
    assert result.exit_code == 0
    assert "star: cheapest" not in (tmp_path / "p.svg").read_text()


@pytest.mark.parametrize("source", ["paper:cifar10", "paper:cifar100", "paper:svhn-extra"])
@pytest.mark.parametrize("isotonic", [[], ["--isotonic"]])
def test_every_option_at_once_with_the_targets_it_chooses(source, isotonic, tmp_path):
    plot = tmp_path / "p.png"
    options = ["--label-price", 2, "--image-price", 0.1, "--plot", plot, *isotonic]
    result = run(source, *options)
    assert result.exit_code == 0
    assert plot.read_bytes().startswith(b"\x89PNG")
    found = json.loads(run(source, *options, "--at", "3000,9000", "--json").stdout)
    assert found["rule"].startswith("isotonic" if isotonic else "raw")
    assert {step["what"] for step in found["next"]["steps"]} == {"labels", "images"}


def test_a_plot_without_prices_into_another_format(tmp_path):
    assert run("paper:cifar100", "--plot", tmp_path / "p.svg").exit_code == 0
    assert (tmp_path / "p.svg").read_text().startswith("<?xml")


def test_a_small_csv_of_ones_own(tmp_path):
    path = tmp_path / "runs.csv"
    path.write_text("labels,total,accuracy\n10,100,57\n10,200,62\n20,100,59\n20,200,64\n")
    result = run(path, "--target", 61, "--label-price", 1, "--image-price", 1, "--plot", tmp_path / "p.png")
    assert result.exit_code == 0
    assert "One run per cell" in result.stdout
    assert "cheapest 20 labels, 140 images in total: 160.00\n" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--target", "99"], "Nothing measured in paper:cifar10 reaches 99 %"),
        (["--target", "0.9"], "looks like a fraction"),
        (["--label-price", "-1", "--image-price", "1"], "price of one label is -1"),
        (["--label-price", "1"], "give --image-price too"),
        (["--image-price", "1"], "give --label-price too"),
        (["--at", "500,20000"], "give --label-price and --image-price along with --at"),
        (["--at", "500", "--label-price", "1", "--image-price", "1"], "--at is LABELS,TOTAL"),
        (["--at", "500,x", "--label-price", "1", "--image-price", "1"], "--at is LABELS,TOTAL"),
        (["--plot", "picture.txt"], "end the name in .png, .svg, .pdf"),
        (["--plot", "no/such/folder/p.png"], "the folder no/such/folder does not exist"),
    ],
)
def test_what_makes_no_sense_is_said(arguments, message):
    result = run("paper:cifar10", *arguments)
    assert isinstance(result.exception, ValueError)
    assert message in str(result.exception)


def test_nothing_in_a_pipe_is_cut_or_wrapped(monkeypatch, tmp_path):
    wide = run("paper:cifar10", "--target", 91.69).stdout
    monkeypatch.setenv("COLUMNS", "40")
    assert run("paper:cifar10", "--target", 91.69).stdout == wide
    assert "1,000    39,114  34,673 to 41,959     38,114     10.7   6.3 to 13.7     11.7" in wide


def test_names_from_files_are_shown_without_their_escape_codes(tmp_path):
    path = tmp_path / "a\x1b[2Jb[bold].csv"
    path.write_text("labels,total,accuracy\n10,100,57\n10,200,62\n20,100,59\n20,200,64\n")
    plot = tmp_path / "p\x1b[2J.svg"
    shown = run(path, "--target", 61, "--plot", plot).stdout
    assert "\x1b" not in shown
    assert r"a\x1b[2Jb[bold].csv" in shown
    assert r"p\x1b[2J.svg" in shown
    for arguments in (["--at", "\x1b[2J", "--label-price", 1, "--image-price", 1], ["--plot", "\x1b[2J.txt"]):
        assert "\x1b" not in str(run(path, *arguments).exception)
