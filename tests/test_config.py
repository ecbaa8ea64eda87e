from __future__ import annotations

import json
from typing import Literal

import pytest

from mma.algorithms import ALGORITHMS
from mma.config import Config, change, from_json
from mma.presets import PRESETS, preset
from mma.query import names
from tests.each import each


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_survives_json(name):
    config = preset(name)
    assert config.preset == name
    assert from_json(config.model_dump_json()) == config


@pytest.mark.parametrize(
    ("name", "filters", "weight", "alpha", "decay", "start", "add", "every", "budgets"),
    [
        ("cifar10", 32, 75, 0.75, 0.02, 250, 50, 32_768, (500, 1_000, 2_000, 4_000)),
        ("cifar100", 128, 150, 0.75, 0.04, 2_500, 500, 32_768, (4_000, 5_000, 8_000, 10_000)),
        ("cifar100-grow100", 128, 150, 0.75, 0.04, 2_500, 100, 16_384, (4_000, 5_000, 8_000, 10_000)),
        ("svhn", 32, 250, 0.75, 0.02, 250, 50, 16_384, (500, 1_000, 2_000, 4_000)),
        ("svhn-extra", 32, 250, 0.25, 0.0001, 250, 50, 16_384, (500, 1_000, 2_000, 4_000)),
    ],
)
def test_paper_presets_hold_the_papers_numbers(name, filters, weight, alpha, decay, start, add, every, budgets):
    c = preset(name)
    assert (c.net.filters, c.algorithm.weight, c.algorithm.alpha, c.optim.weight_decay) == (
        filters,
        weight,
        alpha,
        decay,
    )
    assert (c.growth.start, c.growth.add, c.growth.every, c.growth.budgets) == (start, add, every, budgets)
    assert (c.optim.lr, c.optim.ema_decay, c.optim.batch, c.net.bn_decay) == (0.002, 0.999, 64, 0.999)
    assert (c.growth.ramp_again, c.growth.refresh_every, c.growth.refresh_final) == (False, 0, False)
    assert c.growth.start_set == ("proportional" if name.startswith("svhn") else "uniform")
    assert c.views.mirror == name.startswith("cifar")
    assert (c.log.every, c.log.last, c.algorithm.ramp) == (1_024, 20, 2_048)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_algorithm_is_a_choice_with_its_own_defaults(name):
    other = change(preset("digits"), ["algorithm=vat" if name == "supervised" else "algorithm=supervised"])
    config = change(other, [f"algorithm={name}"])
    assert config.algorithm == ALGORITHMS[name]().for_length(config.growth.steps)
    assert from_json(config.model_dump_json()) == config


@pytest.mark.parametrize("name", names())
def test_every_query_is_a_setting(name):
    assert change(preset("digits"), [f"query={name}"]).query == name


def test_settings_apply_in_order():
    config = change(
        preset("digits"), ["algorithm=vat", "algorithm.weight=0.5", "growth.budgets=[30,60]", "data.total=500"]
    )
    assert (config.algorithm.name, config.algorithm.weight) == ("vat", 0.5)
    assert (config.growth.budgets, config.data.total) == ((30, 60), 500)


@each(
    setting=[
        "grwoth.add=3",
        "add=3",
        "growth.add=many",
        "growth.add=0",
        "growth.add=2.5",
        "growth.add=true",
        "optim.lr=-1",
        "optim.ema_decay=1.0",
        "growth.start=600",
        "growth.start_set=all",
        "growth.start_set=query",
        "algorithm=mixmtach",
        "net=resnet",
        "net={}",
        "algorithm=[1]",
        "optim.batch=1",
        "query=diff-direct",
        "growth.add",
        "data.total=10",
        "zzz=1",
    ]
)
def test_a_wrong_setting_is_named(setting, refusal):
    with refusal():
        change(preset("digits"), [setting])


def test_answers_by_mirror_images_need_training_on_them(refusal):
    with refusal():
        change(preset("cifar10-fast"), ["views.mirror=false"])
    change(preset("cifar10-fast"), ["views.mirror=false", "net.mirrored=false"])


def test_an_unknown_key_in_a_file_is_an_error(refusal):
    data = json.loads(preset("digits").model_dump_json())
    data["optim"]["momentum"] = 0.9
    with refusal():
        from_json(data)


def test_one_setting_needs_no_list():
    assert change(preset("digits"), "growth.add=3") == change(preset("digits"), ["growth.add=3"])


def test_a_config_is_frozen_and_its_digest_tells_it_apart():
    config = preset("digits")
    assert config.digest() == preset("digits").digest()
    assert config.digest() != change(config, ["seed=2"]).digest()
    assert isinstance(config, Config)


@pytest.mark.parametrize(
    "setting",
    [
        "net.stem=cosines",
        "net.mirrored=true",
        "optim.rule=muon",
        "optim.decay=linear",
        "algorithm.align=uniform",
        "views.strong_labels=0.5",
        "growth.policy=passive",
    ],
)
def test_every_setting_changes_the_digest(setting):
    base = change(preset("digits"), ["net=fast", "views.mirror=true"])
    assert change(base, [setting]).digest() != base.digest()


@pytest.mark.parametrize("algorithm", ["vat", "pi-model", "mean-teacher", "pseudo-label", "anchored-mixmatch"])
def test_an_algorithm_chosen_by_name_has_a_ramp_that_fits_the_run(algorithm):
    config = change(preset("digits"), [f"algorithm={algorithm}"])
    assert config.algorithm.ramp == round(0.4 * config.growth.steps) == 480
    assert change(preset("digits"), [f"algorithm={algorithm}", "algorithm.ramp=7"]).algorithm.ramp == 7


def test_choosing_the_entry_that_is_there_keeps_its_settings():
    assert change(preset("digits"), ["algorithm=mixmatch", "net=small"]) == preset("digits")


def test_a_wrong_value_in_a_chosen_group_is_named_with_its_path(refusal):
    with refusal():
        change(preset("digits"), ["algorithm.weight=-1"])
    with refusal():
        change(preset("digits"), ["growth.policy=split", "growth.policy.money=much"])


def test_an_entry_of_user_code_is_a_choice_at_once(monkeypatch):
    class Mine(ALGORITHMS["mixmatch"]):
        name: Literal["mine"] = "mine"
        extra: int = 3

    monkeypatch.setitem(ALGORITHMS, "mine", Mine)
    config = change(preset("digits"), ["algorithm=mine", "algorithm.extra=4"])
    assert from_json(config.model_dump_json()) == config
    assert config.algorithm.extra == 4


def test_an_unknown_preset_is_guessed(refusal):
    with refusal():
        preset("cifar-10")
