"""`mma review`: labels and images of a project that somebody should look at again."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from mma.cli.work import AsJson, ProjectFolder
from mma.text import printable

if TYPE_CHECKING:
    from mma.project.kappa import Kappa
    from mma.project.mistakes import Mistakes


def review(
    project: ProjectFolder,
    shown: Annotated[int, typer.Option("--shown", min=1, help="How many of each kind to print.")] = 10,
    as_json: AsJson = False,
) -> None:
    """Print which labels may be wrong, where people disagree, and which images look like no class."""
    from mma.cli.terminal import talk
    from mma.project import open_project
    from mma.project.mistakes import find_mistakes

    opened = open_project(project)
    try:
        found = find_mistakes(opened, talk)
    finally:
        opened.close()
    if as_json:
        print(json.dumps(asdict(found)))
        return
    for line in describe(found, shown):
        print(printable(line))


def describe(found: Mistakes, shown: int) -> Iterator[str]:
    """Yield the lines to print: a heading with a number for each kind of mistake, and the first of them."""
    from mma.project.mistakes import NEIGHBOURS

    kinds = {
        describe_suspects(found): [
            f"{each.file}: labeled {each.label} by {each.by}; model says {each.likely} {each.likely_confidence:.0%}, "
            f"{each.neighbours} of {NEIGHBOURS} neighbours agree"
            for each in found.suspects
        ],
        f"{len(found.conflicts)} groups of alike images have several labels": [
            "; ".join(f"{label}: {', '.join(files)}" for label, files in group.items()) for group in found.conflicts
        ],
        f"{len(found.disagreements)} images have different answers of different people": [
            *(f"{pair}: {describe_kappa(kappa)}" for pair, kappa in found.pairs.items()),
            *found.disagreements,
        ],
        f"{len(found.self_agreement)} people were asked about images again": [
            *(f"{person}: {describe_kappa(kappa)}" for person, kappa in found.self_agreement.items()),
            *(f"{each.file}: first {each.before}, then {each.after}" for each in found.changed),
        ],
        f"{sum(doubt.cannot_tell for doubt in found.doubts)} images that people could not tell, by folder": [
            f"{doubt.folder or '.'}: {doubt.cannot_tell} of {doubt.asked} asked" for doubt in found.doubts
        ],
        f"{len(found.strangers)} groups of images look alike and like nothing you named: new classes?": [
            f"{len(files)} images, such as {', '.join(files[:3])}" for files in found.strangers
        ],
    }
    yield from found.notes
    for heading, lines in kinds.items():
        if lines:
            yield heading
            yield from (f"  {line}" for line in lines[:shown])
            yield from [f"  and {len(lines) - shown} more"] if len(lines) > shown else []
    if not any(kinds.values()) and not found.notes:
        yield "nothing to look at again was found."


def describe_suspects(found: Mistakes) -> str:
    """Say how many labels look wrong, and how far those who say so can be trusted."""
    many = f"{len(found.suspects)} of {found.labels} labels look wrong to models that did not see them"
    return f"{many} (which are right about {found.predicted or 0.0:.0%} of all labels)"


def describe_kappa(kappa: Kappa) -> str:
    """Write an agreement in words."""
    value = "not defined" if kappa.value is None else f"{kappa.value:.2f}"
    return f"{kappa.same:.0%} the same on {kappa.images} images, kappa {value}"
