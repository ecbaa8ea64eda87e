"""Where the model looks: what each place of a photo adds to the answer. Run in a process of its own.

A head that is linear in the mean over a backbone's maps gives an answer that is a sum over places. Nothing is estimated: the
class activation map (Zhou et al., 2016, arXiv:1512.04150), on vectors that are centred and of length one.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mma.data.photos import explain_bad_file, quiet_decoders
from mma.errors import UserError
from mma.features.backbone import Embedder
from mma.features.pretrained import MobileNetwork
from mma.model import Model, load
from mma.model.model import FeaturePredictor, opener
from mma.nets import HeadNet
from mma.project import open_project

KEPT = "This photo is kept for measuring. What the model sees in it is shown after your answer."
DEEP = (
    "The deep model in use has no heat map: its answer is not a sum over places of the photo. The quick model has one."
)
OTHER = "The model in use has no heat map: it looks through {}. Models that look through lite0 or mobilenetv2 alone have one."


def visible_part(model: Model) -> int:
    """Return which part of the model's input has maps. Raises a sentence where its answer is not a sum over their places."""
    predictor = model.predictor
    if not isinstance(predictor, FeaturePredictor):
        raise UserError(DEEP)
    used = [part for part, embedder in enumerate(predictor.embedders) if embedder is not None]
    for part in used:
        embedder = predictor.embedders[part]
        if len(used) > 1 or not isinstance(embedder, Embedder) or not isinstance(embedder.network, MobileNetwork):
            odd = next((each for each in used if predictor.backbones[each].name not in ("lite0", "mobilenetv2")), part)
            raise UserError(OTHER.format(predictor.backbones[odd].label()))
    return used[0]


@torch.inference_mode()
def places(predictor: FeaturePredictor, part: int, prepared: Sequence[Any]) -> Tensor:
    """Return what each place adds to the logits. (N, classes, rows, columns)

    The mean over the places is the logits without their bias.
    """
    embedder, network = predictor.embedders[part], predictor.network
    assert isinstance(embedder, Embedder)
    assert isinstance(network, HeadNet)
    seen: list[Tensor] = []
    last = embedder.network.last
    assert isinstance(last, torch.nn.Module)
    hook = last.register_forward_hook(lambda module, given, maps: seen.append(maps.float()))
    predictor.vectors(prepared)
    hook.remove()
    maps, centre = seen[0][: len(prepared)], predictor.centres[part]
    length = (maps.mean((2, 3)).half().float() - centre).norm(dim=1)  # as the head divides by it
    start = sum(predictor.input.shape[:part])
    columns = slice(start, start + len(centre))
    weights = (network.head.weight * network.gate)[:, columns] / (network.head.temperature * predictor.temperature)
    x = (maps - centre[:, None, None]) / length[:, None, None, None]
    return torch.einsum("kd,ndij->nkij", weights, x)


def look(model: Model, root: Path, names: Sequence[str]) -> list[dict[str, Any]]:
    """Return for each photo the class that the model sees, and what each place says for it (or against: below zero)."""
    part, predictor = visible_part(model), model.predictor
    assert isinstance(predictor, FeaturePredictor)
    found: list[dict[str, Any]] = [{} for _ in names]
    prepared = {}
    for row, name in enumerate(names):
        try:
            prepared[row] = predictor.prepare(opener(root / name, root))
        except Exception as error:  # decoders raise anything at all on broken bytes
            found[row] = {"why": f"The file cannot be read: {explain_bad_file(error)}."}
    for start in range(0, len(prepared), predictor.batch):
        rows = list(prepared)[start : start + predictor.batch]
        batch = [prepared[row] for row in rows]
        probs, _ = predictor.classify(batch)
        for row, own, said in zip(rows, places(predictor, part, batch), probs.argmax(1).tolist(), strict=True):
            evidence = own[said] - own.mean(0)  # what it says for all classes alike decides nothing
            found[row] = {"name": model.classes[said], "rows": [[round(v, 4) for v in r] for r in evidence.tolist()]}
    return found


def main() -> None:
    """Print, as JSON, the maps of the images of a project named by their ids. `mma.children` starts it."""
    with closing(open_project(Path(sys.argv[1]))) as project, quiet_decoders():
        labeled = {*project.labels().ids}
        images = {image.id: image for image in project.images(sys.argv[2:])}
        found: dict[str, Any] = {each: {"why": "The file is gone."} for each in sys.argv[2:] if each not in images}
        found |= {each: {"why": KEPT} for each, image in images.items() if image.audit and each not in labeled}
        asked = [image for each, image in images.items() if each not in found]
        try:
            maps = look(load(project.folder), project.root, [image.name for image in asked])
        except UserError as error:
            maps = [{"why": str(error)} for _ in asked]
        found |= {image.id: each for image, each in zip(asked, maps, strict=True)}
    print(json.dumps(found))
