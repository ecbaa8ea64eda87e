"""Heat maps: what each place of a photo adds to the answer, and why there is none."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from uuid import uuid4

import numpy as np
import pytest
import torch
from PIL import Image

from mma.project import Answer, create_project, heat
from mma.project.heat import look, places, visible_part
from tests.project.conftest import save_picture


@pytest.fixture
def files(tmp_path: Path, scene: np.ndarray) -> list[str]:
    for number in range(3):
        Image.fromarray(scene[40 * number : 40 * number + 200, 60 * number :]).save(tmp_path / f"{number}.png")
    return ["0.png", "1.png", "2.png"]


@pytest.mark.parametrize("backbone", ["lite0@64/float32", "hog@32+lite0@64/float32"])
def test_places_add_up_to_the_logits(heads, tmp_path, files, backbone):
    model = heads(backbone, gate=backbone.count("+"))
    predictor, part = model.predictor, visible_part(model)
    head = predictor.network.head
    with torch.no_grad():
        head.bias.copy_(torch.tensor([0.5, -1.0, 0.25]))
        head.temperature.fill_(1.7)
    prepared = [predictor.prepare(lambda name=name: Image.open(tmp_path / name)) for name in files]
    said = predictor.network(predictor.vectors(prepared)[:3]) / predictor.temperature
    bias = head.bias / (head.temperature * predictor.temperature)
    found = places(predictor, part, prepared)
    assert found.shape == (3, 3, 2, 2)
    assert torch.allclose(found.mean((2, 3)) + bias, said, atol=0.01)
    assert found.std() > 0.05


def test_a_map_is_of_the_class_that_the_model_sees_and_leaves_out_what_speaks_for_all(heads, tmp_path, files):
    model = heads("lite0@64/float32")
    (tmp_path / "broken.png").write_bytes(b"no picture")
    *maps, broken = look(model, tmp_path, [*files, "broken.png"])
    said = model.predict([tmp_path / name for name in files]).labels
    assert [each["name"] for each in maps] == said
    with torch.no_grad():
        model.predictor.network.head.weight.add_(torch.randn(1, 1280))  # the same for all classes
    again = look(model, tmp_path, files)
    for one, other in zip(maps, again, strict=True):
        assert np.allclose(one["rows"], other["rows"], atol=1e-3)
    assert "cannot be read" in broken["why"]


def test_a_model_whose_answer_is_no_sum_over_places_says_so(heads, pixels, refusal):
    for model in (heads("hog@32"), heads("hog@32+lite0@64"), pixels("small")):
        with refusal():
            visible_part(model)


def test_what_the_model_sees_in_a_photo_kept_for_measuring_is_shown_after_its_answer(tmp_path, monkeypatch, capsys):
    for number in range(12):
        save_picture(tmp_path / "photos" / f"{number}.png", number)
    project = create_project(tmp_path / "photos", classes=["a", "b"])
    project.index()
    images = sorted(project.images(), key=lambda image: not image.audit)
    kept, answered, free = images[0], images[1], images[-1]
    assert kept.audit
    assert answered.audit
    project.answer(Answer(id=uuid4(), images=[answered.id], kind="label", class_id=0, by="ann"))
    monkeypatch.setattr(heat, "load", lambda folder: None)
    monkeypatch.setattr(heat, "look", lambda model, root, names: [{"name": name, "rows": [[1.0]]} for name in names])
    monkeypatch.setattr(sys, "argv", ["heat", str(project.folder), kept.id, answered.id, free.id, "0" * 64])
    heat.main()
    found = json.loads(capsys.readouterr().out)
    assert [found[each.id].get("name") for each in (kept, answered, free)] == [None, answered.name, free.name]
    assert "kept for measuring" in found[kept.id]["why"]
    assert "gone" in found["0" * 64]["why"]
    project.close()
