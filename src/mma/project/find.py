"""Find all photos of one class: which to look at next, what was found, and how much of the class that is at least. No torch.

Likely photos come first, in the order of the model's probability. When they bring nothing any more, photos are drawn at random
from those nobody has looked at: they alone show how many there can still be. What was asked and answered is a file of the
project, one line per step, so that a reload or a restart draws nothing anew. Photos of the class become labels; that a photo
is something else is known to the search alone. Photos kept for measuring are not searched.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple
from uuid import UUID, uuid4

from pydantic import BaseModel, ConfigDict, Field

from mma.errors import UserError
from mma.files import append_lines, in_turn, read_lines
from mma.project.labels.events import merge_roots
from mma.project.models import ANSWERS
from mma.project.project import Project
from mma.project.quality.promises import BATCH, FOUND_SURE, GOAL, Recall, draws_at_random
from mma.project.records import Answer, Key, Klass, Person
from mma.rng import rng
from mma.text import did_you_mean, printable, quote_path


class FindRequest(BaseModel):
    """Answer a batch of a search and ask for the next one; without a batch, ask for the one that is open."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    by: Person
    class_id: int
    batch: int | None = None  # its number, as it was asked
    yes: list[Key] = Field(default_factory=list, max_length=BATCH)  # the photos of it that are of the class
    id: UUID | None = None  # of the answer: sent twice, it is stored once
    seconds: float | None = Field(default=None, ge=0, allow_inf_nan=False)


class FoundImage(NamedTuple):
    """A photo of a batch, and how likely the model thinks that it is of the class."""

    image: str
    name: str
    likely: float


class SearchState(NamedTuple):
    """How far a search is, and what to look at next."""

    class_id: int
    name: str
    found: int  # photos of the class, all that are labeled so
    looked: int  # photos of this search that were answered
    rest: int  # photos that can still be looked at
    kept: int  # photos kept for measuring, which are not searched
    promise: float  # share of the class that is found at least
    done: bool
    batch: int
    at_random: bool
    items: list[FoundImage]
    words: str
    why: str


def class_called(project: Project, name: str) -> Klass:
    """Return the class of a name, or say which ones there are."""
    known = {each.name: each for each in project.classes() if each.merged_into is None}
    folded = {each.casefold(): klass for each, klass in known.items()}
    if (found := known.get(name) or folded.get(name.casefold())) is None:
        names = ", ".join(printable(each) for each in known) or "none yet"
        raise UserError(f"there is no class '{printable(name)}'.{did_you_mean(name, known)} Classes: {names}.")
    return found


def search(project: Project, asked: FindRequest) -> SearchState:
    """Store the answer to a batch, if it is the open one, and return how far the search is, with the batch to answer next."""
    klass = next((each for each in project.classes() if each.id == asked.class_id and each.merged_into is None), None)
    if klass is None:
        raise UserError("there is no such class any more.")
    log = project.layout.state / f"find-{klass.id}.jsonl"
    with in_turn(project.layout.state / "find.lock"):
        lines = read_lines(log)
        open_batch = lines[-1] if lines and "asked" in lines[-1] else None
        if asked.batch is not None and open_batch is not None and asked.batch == len(lines):
            yes = [image for image in open_batch["asked"] if image in set(asked.yes)]
            if yes:
                said: dict[str, Any] = {"kind": "label", "class_id": klass.id, "source": "grid"}
                project.answer(Answer(id=asked.id or uuid4(), images=yes, by=asked.by, seconds=asked.seconds, **said))
            lines, open_batch = [*lines, {"yes": yes, "by": asked.by}], None
            append_lines(log, lines[-1:])
        return _next(project, klass, lines, open_batch, log)


def _next(project: Project, klass: Klass, lines: list[dict[str, Any]], open_batch: Any, log: Any) -> SearchState:
    """Replay a search, draw a batch if none is open, and say what is promised."""
    images, labels, roots = project.images(), project.labels(), merge_roots(project.classes())
    given = {image: roots[number] for image, number in zip(labels.ids, labels.class_ids, strict=True)}
    names = {image.id: image.name for image in images if not image.audit}
    found = sum(given.get(image) == klass.id for image in names)
    if not any(number == klass.id for number in given.values()):
        raise UserError(
            f"no photo is labeled {printable(klass.name)} yet, so the model cannot know what to look for. Label one first:  "
            f"mma start {quote_path(project.root)}"
        )
    stored = project.models.answers(ANSWERS)
    members = [place for place, number in enumerate(stored.classes if stored else ()) if roots.get(number) == klass.id]
    if stored is None or not members:
        raise UserError(
            f"the model does not know {printable(klass.name)} yet. It learns it from the labels of two classes and a few "
            f"seconds of training:  mma start {quote_path(project.root)}"
        )
    bound, batches, looked = Recall(len(names)), list[tuple[bool, int, int]](), set[str]()
    size = None
    for ask, answer in zip(lines[::2], lines[1::2], strict=False):
        yes = set(answer["yes"])
        if size != ask["images"]:  # photos that came later were never drawn: what was shown says nothing about them
            size, bound = ask["images"], Recall(len(names))
        hits = 0
        for place, image in enumerate(ask["asked"]):
            if ask["random"]:
                bound.draw(ask["rest"] - place, ask["found"] + hits, hit=image in yes)
            hits += image in yes
        batches.append((ask["random"], len(ask["asked"]), hits))
        looked.update(ask["asked"])
    if size != len(names):
        bound = Recall(len(names))
    left_out = {*labels.cannot_tell, *labels.excluded}
    rest = [image for image in names if image not in given and image not in looked and image not in left_out]
    likely = stored.probs[:, members].sum(1)
    chance = {image: float(likely[stored.row[image]]) if image in stored.row else 0.0 for image in rest}
    promise = bound.promise(found, len(rest))
    if open_batch is None and rest:
        at_random = draws_at_random(batches, len(rest))
        if at_random:
            drawn = rng(project.settings.seed, "find", klass.id, len(lines)).permutation(len(rest))[:BATCH]
            chosen = [rest[place] for place in drawn.tolist()]
        else:
            chosen = sorted(rest, key=lambda image: -chance[image])[:BATCH]
        open_batch = {"asked": chosen, "random": at_random, "rest": len(rest), "found": found, "images": len(names)}
        append_lines(log, [open_batch])
        lines = [*lines, open_batch]
    at_random, shown = bool(open_batch and open_batch["random"]), open_batch["asked"] if open_batch else []
    kept, batch = sum(image.audit and image.id not in given for image in images), len(lines) if open_batch else 0
    items = [FoundImage(image, names.get(image, ""), round(chance.get(image, 0.0), 4)) for image in shown]
    words, why = promise_words(klass.name, found, len(looked), promise), _why(at_random, found, len(rest), shown)
    so_far = found, len(looked), len(rest), kept, promise, promise >= GOAL
    return SearchState(klass.id, klass.name, *so_far, batch, at_random, items, words, why)


def promise_words(name: str, found: int, looked: int, promise: float) -> str:
    """Say what was found and what is promised."""
    text = f"{found:,} photo{'' if found == 1 else 's'} of {printable(name)} found, {looked:,} looked at. "
    sure = f"({100 * FOUND_SURE:.0f} % sure)"
    if promise >= 1:
        return f"{text}All of them are found {sure}."
    at_least = f"At least {100 * math.floor(100 * promise) / 100:.0f} % of them are found {sure}"
    return f"{text}{at_least}" + (": you may stop." if promise >= GOAL else f"; the goal is {100 * GOAL:.0f} %.")


def _why(at_random: bool, found: int, rest: int, shown: Sequence[str]) -> str:
    if not shown:
        return "Every photo was looked at."
    if not at_random:
        return "Those that the model thinks likeliest. What it does not expect is looked for later."
    allowed = math.floor(found * (1 / GOAL - 1)) + 1
    many = math.ceil(rest * (1 - (1 - FOUND_SURE) ** (1 / allowed)))
    return (
        "Drawn at random from all photos that nobody has looked at: only these show how many can still be missing. About "
        f"{many:,} of them without another one would do."
    )
