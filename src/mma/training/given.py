"""Labels that another run has paid for: a new run starts with them, so that nobody is asked twice."""

from __future__ import annotations

from mma.config import Config, config_of, from_json
from mma.data import Images
from mma.files import Row
from mma.run import Run

GIVEN = "given"  # the strategy of the query that stands for them


def with_labels_of(config: Config, source: Run) -> Config:
    """Return the config of a run that starts with the labels of another one; it may buy more, never fewer."""
    count = sum(label >= 0 for label in source.answers().values())
    if not count:
        raise ValueError(
            f"{source.folder} has no labels yet that another run could start with. Train it first:  "
            f"mma train {source.folder}"
        )
    growth = {**config.growth.model_dump(mode="json"), "start": count, "budget": max(count, config.growth.budget)}
    return from_json({**config.model_dump(mode="json"), "growth": growth})


def choose_deep_preset(source: Run) -> tuple[str, str]:
    """Return the preset for pixels that suits the labels of a run on features, and why.

    The run has compared its backbones by cross-validation on its labels. Where one that was not pretrained, such as hog, is
    better than the pretrained ones, there is little to fine-tune: a network from scratch does better there.
    """
    starts = [row["accuracies"] for row in source.read("starts") if row.get("accuracies")]
    names = str(config_of(source).views.model_dump().get("backbone", "")).split("+")
    found = {name: starts[-1][str(number)] for number, name in enumerate(names)} if starts else {}
    pretrained = {name: value for name, value in found.items() if is_pretrained(name)}
    others = {name: value for name, value in found.items() if not is_pretrained(name)}
    if not pretrained or not others:
        return (
            "photos-deep",
            f"{source.folder} has not compared a pretrained backbone with another one: it is fine-tuned",
        )
    best, other = max(pretrained, key=lambda name: found[name]), max(others, key=lambda name: found[name])
    compared = f"on the labels, cross-validated, {best} reaches {found[best]:.1f} % and {other} {found[other]:.1f} %"
    if found[other] > found[best]:
        return "photos-scratch", f"{compared}: the network is trained from scratch"
    return "photos-deep", f"{compared}: the network is fine-tuned"


def is_pretrained(backbone: str) -> bool:
    """Return whether a backbone is a network that was trained on photos."""
    return backbone.partition("@")[0].partition("/")[0] != "hog"


def given_logs(source: Run, images: Images) -> dict[str, list[Row]]:
    """Return the first rows of a new run's logs: the labels of `source`, found again by the keys of their images.

    Images that people could not tell are taken over too, and so are those that were bought to measure by.
    """
    wanted = source.answers()
    rows = {row["index"]: row for row in source.read("labels") if row["index"] in wanted}
    known = [rows[index] for index in wanted]
    places = images.rows([row["key"] for row in known])
    first = dict(zip(reversed(places.tolist()), reversed(known), strict=True))  # equal images have one place
    labels = [as_given(place, first[place], images) for place in dict.fromkeys(places.tolist())]
    query = {
        "round": 0,
        "step": 0,
        "strategy": GIVEN,
        "indices": [row["index"] for row in labels],
        "keys": [row["key"] for row in labels],
        "scores": [0.0] * len(labels),
    }
    return {"queries": [query], "labels": labels}


def as_given(index: int, row: Row, images: Images) -> Row:
    """Return a label as the new run writes it: its class is found by name."""
    name = row.get("class")
    if name is not None and name not in images.classes:
        raise ValueError(
            f"a label says '{name}', which is no class of this data set: {', '.join(images.classes)}. Give the data set that "
            "the labels are of, with the same classes."
        )
    label = row["label"] if name is None else images.classes.index(name)
    return {"round": 0, "index": index, "key": row["key"], "label": label, "class": name}
