"""What more labels would bring, and how earlier forecasts came out."""

from __future__ import annotations

import csv
import importlib.util
from pathlib import Path

import numpy as np
import pytest

from mma.project.quality.forecast import (
    DECIDES,
    AccuracyPoint,
    Check,
    Curve,
    Gain,
    check_forecasts,
    forecast_words,
    spread_at,
)
from mma.shares import exact_interval

ROOT = Path(__file__).parents[2]


def curve(sizes, floor=4.0, height=40.0, power=0.8, noise=0.0, seed=0):
    """Return a curve with so much noise at 50 % accuracy; nearer to 100 % it is less."""
    luck = np.random.default_rng(seed).standard_normal(len(sizes)) * noise
    errors = floor + height * (np.array(sizes) / sizes[0]) ** -power
    errors = errors + luck * spread_at(errors, np.array(sizes))
    return [AccuracyPoint(int(n), float(100 - error)) for n, error in zip(sizes, errors, strict=True)]


SIZES = tuple(range(20, 220, 20))


def test_a_steep_curve_promises_more_than_a_flat_one():
    steep = Curve(curve(SIZES[:5])).gain(50)
    flat = Curve([AccuracyPoint(n, 90.0) for n in SIZES]).gain(50)
    assert steep.points > flat.points
    assert 0 <= flat.points < 1.0


def test_the_forecast_of_a_clean_curve_is_near_it():
    points = curve((*SIZES, 300))
    said = Curve(points[:-1]).at(300)
    assert said.low <= points[-1].accuracy <= said.high
    assert said.accuracy == pytest.approx(points[-1].accuracy, abs=0.7)


def test_noisier_curves_have_wider_bands():
    quiet, loud = (Curve(curve(SIZES, noise=noise)).at(260) for noise in (0.2, 4.0))
    assert loud.high - loud.low > 1.5 * (quiet.high - quiet.low)


def test_bands_widen_with_the_distance():
    found = Curve(curve(SIZES, noise=1.0))
    near, far = found.at(220), found.at(800)
    assert far.high - far.low > near.high - near.low


def test_bands_hold_about_nine_of_ten_later_accuracies():
    inside = []
    for seed in range(200):
        points = curve((*SIZES, 260), noise=2.0, seed=seed)
        said = Curve(points[:-1]).at(260)
        inside.append(said.low <= points[-1].accuracy <= said.high)
    assert 0.85 <= np.mean(inside) <= 0.97


def test_a_curve_that_falls_gains_nothing_and_does_not_crash():
    falling = [AccuracyPoint(n, 90.0 - 4 * place) for place, n in enumerate(SIZES)]
    said = Curve(falling).at(300)
    assert said.accuracy < 80
    assert said.low <= said.accuracy <= said.high


def test_a_lucky_last_model_does_not_make_labels_look_harmful():
    points = [*curve(SIZES), AccuracyPoint(220, 92.5)]
    found = Curve(points).gain(50)
    assert found.points > 0
    assert found.low < found.points < found.high
    assert (found.shown_low, found.shown_high) == (found.low, found.high)  # a curve that many images measured


def test_the_same_points_give_the_same_forecast():
    points = curve(SIZES, noise=1.0)
    assert Curve(points).gain(50) == Curve(points[::-1]).gain(50)


def test_the_minutes_of_a_gain_are_those_of_the_person():
    found = Curve(curve(SIZES))
    assert found.gain(50, seconds=12.0).minutes == pytest.approx(10.0)
    assert found.gain(50).minutes is None


def measured_curve(seed, photos=40, noise=0.0):
    """Return the true accuracies of models, and what the same few photos say about each."""
    truth = curve((*SIZES, 250), noise=noise, seed=seed)
    hard = np.random.default_rng(seed).random(
        photos
    )  # a photo is right from the accuracy on at which its number is reached
    points = []
    for point in truth[:-1]:
        right = int((hard < point.accuracy / 100).sum())
        low, high = exact_interval(right, photos)
        points.append(AccuracyPoint(point.labels, 100 * right / photos, 100 * low, 100 * high))
    return points, truth[-1].accuracy - truth[-2].accuracy


def test_bands_of_a_curve_that_few_photos_measured_hold_the_true_gain():
    inside = []
    for seed in range(60):
        points, came = measured_curve(seed, noise=1.0)
        gain = Curve(points).gain(50)
        inside.append(gain.low <= came <= gain.high)
    assert np.mean(inside) >= 0.85


def test_what_few_photos_measure_scatters_more_than_the_model():
    points, _ = measured_curve(0)
    gain = Curve(points).gain(50)
    assert gain.shown_low < gain.low < gain.high < gain.shown_high


def test_a_forecast_is_shown_where_its_band_decides():
    narrow, wide = Gain(50, 1.0, 0.0, DECIDES, -2.0, 5.0, 3.2), Gain(50, 5.0, -1.0, DECIDES, -2.0, 9.0)
    assert forecast_words(narrow) == "Next 50 labels: +1.0 points (0.0 to 4.0), about 3 minutes at your speed."
    assert forecast_words(wide).startswith("No forecast yet: the next 50 labels could bring 0 to 4 points.")
    assert forecast_words(None).startswith("No forecast yet: it takes 4 models")


def test_forecasts_that_did_not_come_true_are_not_shown_any_more():
    right, wrong = Check(100, 2.0, 1.0, 3.0, 2.0), Check(100, 2.0, 1.0, 3.0, 9.0)
    narrow = Gain(50, 1.0, 0.0, 2.0, -2.0, 5.0)
    assert forecast_words(narrow, [right, wrong]).endswith("1 of 2 earlier forecasts came true.")
    assert forecast_words(narrow, [right] * 2 + [wrong] * 3).startswith("No forecast: only 2 of the last 5 came true")


def test_labels_to_a_target_come_with_a_band_and_end_where_nothing_can_be_foreseen():
    found = Curve(curve(SIZES))  # the error's floor is 4
    reach = found.labels_to(92.0)
    truth = 20 * (4.0 / 40.0) ** (-1 / 0.8)
    assert reach.low <= truth <= (reach.high or np.inf)
    assert found.labels_to(99.9).labels is None


def test_a_target_that_is_reached_takes_no_more_labels_than_there_are():
    assert Curve(curve(SIZES)).labels_to(60.0).labels <= SIZES[-1]


def test_too_few_models_are_an_error_that_says_how_many(refusal):
    with refusal():
        Curve(curve(SIZES[:3]))


def test_an_earlier_forecast_is_compared_with_what_came():
    points = [AccuracyPoint(100, 80.0), AccuracyPoint(120, 80.9), AccuracyPoint(151, 82.5), AccuracyPoint(200, 84.0)]
    checks = check_forecasts(
        [(100, Gain(50, 2.0, 1.0, 2.2, 0.5, 3.0)), (200, Gain(50, 1.0, 0.0, 2.0, -1.0, 3.0))], points
    )
    assert checks == (Check(100, 2.0, 0.5, 3.0, 2.5),)
    assert checks[0].inside
    assert not Check(100, 2.0, 2.6, 3.0, 2.5).inside


def test_bands_on_the_curves_of_our_results_hold_what_they_promise():
    """The table in results/forecast is what `python tools/forecast.py` makes of results/*/rounds.csv."""
    spec = importlib.util.spec_from_file_location("forecast_tool", ROOT / "tools" / "forecast.py")
    tool = importlib.util.module_from_spec(spec)
    import sys

    sys.modules["forecast_tool"] = tool
    spec.loader.exec_module(tool)
    rows = tool.all_rows()
    with (ROOT / "results" / "forecast" / "table.csv").open() as file:
        assert rows == list(csv.DictReader(file)), "results have changed: run  python tools/forecast.py"
    heads, everything = rows[-2:]
    assert int(heads["curves"]) >= 20
    assert 80.0 <= float(heads["inside the band"].split()[0]) <= 98.0  # with thousands of labels bands are too wide
    assert float(everything["mean error"]) < float(everything["mean error, same gain again"])
