"""Who is asked about which image: picks of the model, audit images, groups that look alike. Leases keep people apart."""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection, Select, and_, delete, exists, func, insert, or_, select, update

from mma.project.guesses import NAMES, read_doubts
from mma.project.labels import database as db
from mma.project.labels.events import LEASE, add_counts, chunks, count, merge_roots, read_classes, read_counters
from mma.project.models import ANSWERS, PREDICTIONS, StoredAnswers
from mma.project.records import SECOND_LOOKS, Item, Pick, ProjectImage

if TYPE_CHECKING:
    from mma.project.project import Project

AUDIT_WHY = "drawn at random to measure how good the model is"
FALLBACK_WHY = "drawn at random"
AGAIN_WHY = "asked a second time, to see how steady the answers are"
EARLY = 0.4  # of the questions, until there are enough audit images to name an accuracy that means something
RECHECK = 5  # one question in five at most is about an audit label that may be a slip, or that is mixed with such
AT_ONCE = 64  # picks looked up at a time; the first free one is near the front


class Rules(NamedTuple):
    """The settings of a project that decide who is asked what."""

    overlap: int = 1  # people per image
    audit_asked: float = 0.1  # share of audit images among those asked about, once audit_early of them were
    audit_early: int = 60  # audit images asked about first, two questions in five
    again_share: float = 0.0  # share of the questions that are about labels given long before
    lease: float = LEASE  # seconds
    measures: bool = False  # audit images alone


def audit_is_due(asked: int, audits: int, rules: Rules) -> bool:
    """Tell whether the next question is about an audit image. Where many are owed, every other question is."""
    share, count = rules.audit_asked, asked + 1
    early = rules.audit_early * (1 - share / EARLY) if share else 0.0
    due = max(share * count, min(EARLY * count, share * count + early))
    return audits < due - 1e-9 and (audits < 1 or asked % 2 == 0 or due - audits <= 1)


def recheck_is_due(asked: int, rules: Rules) -> bool:
    """Tell whether the next question may be about an audit image that was asked about before."""
    return rules.again_share > 0 and asked % RECHECK == RECHECK - 1


def next_items(connection: Connection, by: str, n: int, holding: Collection[str], rules: Rules) -> list[Item]:
    """Lease up to `n` images that the person does not hold yet. What they held and lost sight of comes first."""
    moment, c = time.time(), db.leases.c
    until = moment + rules.lease

    def renew(images: Collection[str]) -> None:
        for part in chunks(sorted(images)):
            mine = update(db.leases).where(c.by == by, c.image.in_(part))
            connection.execute(mine.values(taken=moment, until=until))

    renew(holding)
    asked = [c[name].label(f"asked_{name}") for name in ("provenance", "why", "model", "suggestion")]
    leased = select(db.images, *asked).join(db.leases, c.image == db.images.c.id).where(c.by == by, is_live(moment))
    held = [row for row in connection.execute(leased.order_by(c.taken, db.images.c.rank)) if row.id not in holding]
    lost = [row for row in held if row.open or row.asked_provenance in SECOND_LOOKS][:n]  # by a reload, say
    renew([row.id for row in lost])
    items = [_item(row, row.asked_provenance, row.asked_why, row.asked_model, row.asked_suggestion) for row in lost]

    taken = {item.image for item in items} | set(holding)
    turn, new = _Turn(connection, by, rules, moment), list[Item]()
    while len(items) + len(new) < n and (item := turn.choose(taken)) is not None:
        taken.add(item.image)
        new.append(item)
    connection.execute(delete(db.leases).where(c.image.in_([item.image for item in new]), c.by == by))  # run out
    rows = [db.LeaseRow(i.image, by, moment, until, i.provenance, i.why, _as_json(i.suggestion), i.model) for i in new]
    db.insert_rows(connection, db.leases, rows)
    audits = sum(item.provenance == "audit" for item in new)
    add_counts(connection, Counter({"asked": len(new), "asked_audit": audits}))
    return items + new


def is_live(moment: float) -> Any:
    """Tell in SQL whether a lease holds. One from the future was taken before the clock was set back."""
    return and_(db.leases.c.until > moment, db.leases.c.taken <= moment + 1)


class _Turn:
    """One person asks for images: what to take next."""

    def __init__(self, connection: Connection, by: str, rules: Rules, moment: float) -> None:
        self.connection, self.by, self.rules, self.moment = connection, by, rules, moment
        self.asked, self.audits = read_counters(connection, "asked", "asked_audit")
        ready = select(func.max(db.models.c.number)).where(db.models.c.state == "ready")
        self.model: int | None = connection.execute(ready).scalar()

    def choose(self, taken: Collection[str]) -> Item | None:
        """Take an audit image when it is their turn, else a pick, else one at random; anything rather than nothing."""
        audit_first = audit_is_due(self.asked, self.audits, self.rules)
        ways = (self._audit, self._pick, self._any) if audit_first else (self._pick, self._any, self._audit)
        free = _free(self.by, taken, self.rules, self.moment)
        if self.rules.measures:
            item = self._audit(free)
        else:
            item = self._recheck(taken) or self._again(taken) or next(filter(None, (way(free) for way in ways)), None)
        if item is not None:
            self.asked += 1
            self.audits += item.provenance == "audit"
        return item

    def _recheck(self, taken: Collection[str]) -> Item | None:
        """Take an audit image whose label this person gave, perhaps by a slip; or one that hides which of them are such."""
        if not recheck_is_due(self.asked, self.rules):
            return None
        image, pick, event = db.images.c, db.picks.c, db.events.c
        query = (
            select(db.images)
            .join(db.picks, and_(pick.image == image.id, pick.provenance == "recheck"))
            .join(db.current, db.current.c.image == image.id)
            .join(db.events, and_(event.seq == db.current.c.seq, event.by == self.by))
            .where(image.present == 1, image.id.not_in(sorted(taken)))
            .order_by(pick.position)
        )
        row = self.connection.execute(query.limit(1)).first()
        return None if row is None else _item(row, "recheck", AGAIN_WHY, self.model)

    def _again(self, taken: Collection[str]) -> Item | None:
        row = choose_again(self.connection, self.by, self.asked + 1, self.rules.again_share, taken)
        return None if row is None else _item(row, "again", AGAIN_WHY, self.model)

    def _audit(self, free: Any) -> Item | None:
        return self._drawn(1, free, "audit", AUDIT_WHY)

    def _any(self, free: Any) -> Item | None:
        return self._drawn(0, free, "random" if self.model else "start", FALLBACK_WHY)

    def _drawn(self, audit: int, free: Any, provenance: str, why: str) -> Item | None:
        """Take the next one of a random order; those put off come last."""
        image = db.images.c
        query = select(db.images).where(image.open == 1, image.audit == audit, free)
        row = self.connection.execute(query.order_by(image.deferred, image.rank).limit(1)).first()
        return None if row is None else _item(row, provenance, why, self.model)

    def _pick(self, free: Any) -> Item | None:
        """Take the first pick that is free; those put off come after all others."""
        put_off: list[tuple[int, int, Any, Any]] = []
        c, last = db.picks.c, -1
        queue = select(db.picks).where(c.provenance != "recheck").order_by(c.position).limit(AT_ONCE)
        # The picks are read by themselves: joined with the images, a database may walk through all of them.
        while part := self.connection.execute(queue.where(c.position > last)).all():
            query = select(db.images).where(db.images.c.id.in_([pick.image for pick in part]), free)
            rows = {row.id: row for row in self.connection.execute(query) if row.open}
            picks = [(pick, rows[pick.image]) for pick in part if pick.image in rows]
            put_off += [(row.deferred, pick.position, row, pick) for pick, row in picks]
            if put_off and min(put_off)[0] == 0:
                break
            last = part[-1].position
        if not put_off:
            return None
        _, _, row, pick = min(put_off)
        return _item(row, pick.provenance, pick.why, pick.model, pick.suggestion)


def _free(by: str, taken: Collection[str], rules: Rules, moment: float) -> Any:
    """Tell in SQL whether this person may be asked about an open image now.

    Whether it is open is not said here: beside a list of ids, SQLite would take that for the better index, and walk
    through all open images.
    """
    image, lease, event = db.images.c, db.leases.c, db.events.c
    others = and_(lease.image == image.id, lease.by != by, is_live(moment))  # about the image, one row at a time
    if rules.overlap == 1:
        rest = [~exists().where(others)]
    else:
        held = select(func.count(lease.image)).where(others).correlate(db.images).scalar_subquery()
        mine = select(event.seq).where(
            event.image == image.id, event.by == by, event.active == 1, event.kind != "later"
        )
        rest = [image.answers + held < rules.overlap, ~exists(mine)]
    return and_(image.id.not_in(sorted(taken)), *rest)


def _item(row: Any, provenance: str, why: str, model: int | None, suggestion: str | None = None) -> Item:
    classes = None if suggestion is None else [(int(number), float(prob)) for number, prob in json.loads(suggestion)]
    return Item(row.id, provenance, why, classes, row.width, row.height, row.name, model)


def _as_json(suggestion: list[tuple[int, float]] | None) -> str | None:
    return None if suggestion is None else json.dumps(suggestion)


def release(connection: Connection, by: str) -> None:
    """Give back what a person holds, for example when their page closes."""
    connection.execute(update(db.leases).where(db.leases.c.by == by).values(until=0.0))


def replace_picks(connection: Connection, picks: Sequence[Pick], model: int | None) -> int:
    """Replace the queue; leases stay. Unknown and settled images are left out; return how many are queued.

    Of audit images, those to ask about again are taken alone, once each.
    """
    usable: set[str] = set()
    again, c = {pick.image for pick in picks if pick.provenance == "recheck"}, db.images.c
    for part in chunks([pick.image for pick in picks]):
        rows = connection.execute(select(c.id, c.open, c.audit).where(c.id.in_(part)))
        usable.update(row.id for row in rows if (row.id in again if row.audit else row.open))
    connection.execute(delete(db.picks))
    found = {pick.image: pick for pick in reversed(picks) if pick.image in usable}
    queue = [pick for pick in picks if found.get(pick.image) is pick]
    queued = [
        db.PickRow(pick.image, place, pick.why, float(pick.score), pick.provenance, _as_json(pick.suggestion), model)
        for place, pick in enumerate(queue)
    ]
    db.insert_rows(connection, db.picks, queued)
    return len(queue)


# A few questions about labels given long before: are grids pure, and does a person say the same twice? No torch.

DELAY = 100  # events between an answer and the same question
WINDOW = 2_000  # events that are looked through for a label to ask about
GOLDEN = 0.6180339887498949  # its multiples spread evenly over the answers so far, however many there will be


def choose_again(connection: Connection, by: str, asked: int, share: float, taken: Collection[str]) -> Any:
    """Return the image of a label that this person gave long before, when question number `asked` is for that; else None.

    Labels of grids and single ones take turns. Audit images are left out, and a label is asked about once.
    """
    if share <= 0 or asked % round(1 / share):
        return None
    turn = asked // round(1 / share)
    last = count(connection, "seq") - DELAY
    start = int(turn * GOLDEN % 1 * max(last, 0))
    event, image = db.events.c, db.images.c
    old = (  # images whose label in force is this person's, given between two events
        select(db.images)
        .join(db.events, event.image == image.id)
        .join(db.current, and_(db.current.c.image == event.image, db.current.c.seq == event.seq))
        .where(event.by == by, event.active == 1, event.kind == "label", image.audit == 0, image.present == 1)
        .where(event.seq > start, event.seq <= min(start + WINDOW, last))
        .order_by(event.seq)
        .limit(len(taken) + 1)
    )
    kinds = [event.provenance.not_in([*SECOND_LOOKS, "grid", "import"]), event.provenance == "grid"]
    for kind in kinds[:: -1 if turn % 2 else 1]:
        for row in connection.execute(old.where(kind)):
            if row.id not in taken:
                return row
    return None


# Groups of images to label at once: those a model takes for one class, or those that look alike.

LOOKED_AT = 20_000  # images among which look-alikes are sought
CANDIDATES = 500  # images of a class, the surest ones, of which some may be leased or near-duplicates
HASH_BYTES = 8
SEEDS = 200  # images one of which begins a group of look-alikes
SAME_CLASS = 0.6  # probability that two images have one class, from which on the model takes them for alike
SAME_BITS = 52  # of the 64 bits of two perceptual hashes; those of unlike images agree in about 32
LEAST = 6  # images that make a group


class PhotoGroup(NamedTuple):
    """Images to label together. `alike` is False when nothing shows that they have something in common."""

    images: list[ProjectImage]
    alike: bool
    guessed: str = ""  # the source that chose them, before there is a model


def lease_group(
    connection: Connection, project: Project, by: str, class_id: int | None, n: int, holding: Collection[str]
) -> PhotoGroup:
    """Lease up to `n` images that look like a class, the surest first, or without a class that look like each other.

    `holding` are images that the person has answered, which the server may not know yet. They are left out.
    The person's leases for single images are others, so that what is taken out of a grid does not come next there.
    """
    holder, moment = f"{by} (grid)", time.time()
    connection.execute(delete(db.leases).where(db.leases.c.by == holder))
    free, opinion = _free_for_grid(by, holding, moment), latest_opinion(connection, project)
    if class_id is None:
        rows, alike = _alike(connection, free, opinion)
    else:
        roots = merge_roots(read_classes(connection))
        doubted = [image for image, klass in read_doubts(connection) if roots.get(klass) == class_id]
        free = _free_for_grid(by, [*holding, *doubted], moment)
        members = {k for k, root in roots.items() if root == class_id}
        if not any(read_counters(connection, *(f"class:{k}" for k in members))):
            opinion = guess_opinion(project) or opinion  # no model has seen it
        rows, alike = _surest(connection, free, opinion, members), True
    values = {"by": holder, "taken": moment, "until": moment + LEASE, "provenance": "grid", "why": "looks like others"}
    if rows := rows[:n]:
        connection.execute(insert(db.leases), [{**values, "image": row.id} for row in rows])
    images = [ProjectImage(row.id, row.name, row.width, row.height, row.near, bool(row.audit)) for row in rows]
    return PhotoGroup(images, alike, "" if class_id is None else opinion.name)


def latest_opinion(connection: Connection, project: Project) -> StoredAnswers:
    """Return what the newest model says about all images; before there is one, what a source guesses."""
    if (stored := project.models.answers(ANSWERS, PREDICTIONS) or guess_opinion(project)) is not None:
        return stored
    query = select(db.picks.c.image, db.picks.c.suggestion).where(db.picks.c.suggestion.is_not(None))
    guesses = {row.image: dict(json.loads(row.suggestion)) for row in connection.execute(query)}
    classes = sorted({class_id for guess in guesses.values() for class_id in guess})
    probs = np.array([[guess.get(class_id, 0.0) for class_id in classes] for guess in guesses.values()], np.float32)
    row = {image: place for place, image in enumerate(guesses)}
    found = probs.reshape(len(guesses), len(classes))
    return StoredAnswers(0, tuple(classes), found, row, np.zeros(len(row), bool))


def guess_opinion(project: Project) -> StoredAnswers | None:
    """Return what a source guesses; what somebody brought comes before the names."""
    return min(project.guesses.sources(), key=lambda source: source.name == NAMES, default=None)


def _free_for_grid(by: str, holding: Collection[str], moment: float) -> Select[Any]:
    """Select open images that nobody is being asked about, that this person has not answered, and that measure nothing.

    An image stays open after an answer where several people are asked about each. The answers are listed once: looked up
    for each image, SQLite would walk through all answers of the person again and again.
    """
    image, lease, event = db.images.c, db.leases.c, db.events.c
    held = select(lease.image).where(lease.image == image.id, is_live(moment))
    mine = select(event.image).where(event.by == by, event.active == 1, event.kind != "later")
    answered = or_(image.id.in_(sorted(holding)), image.id.in_(mine))
    return select(db.images).where(image.open == 1, image.audit == 0, ~exists(held), ~answered)


def _surest(connection: Connection, free: Select[Any], opinion: StoredAnswers, members: set[int]) -> list[Any]:
    """Return free images of a class, the surest first, one of each group of near-duplicates."""
    mine = np.isin(opinion.classes, sorted(members))
    if not mine.any():
        return []
    images = list(opinion.row)
    of_class = np.flatnonzero(mine[opinion.probs.argmax(1)])
    order = of_class[np.argsort(-opinion.probs[of_class][:, mine].sum(1), kind="stable")]
    groups: dict[str, Any] = {}
    for begin in range(0, len(order), CANDIDATES):
        place = {images[at]: rank for rank, at in enumerate(order[begin : begin + CANDIDATES])}
        rows = connection.execute(free.where(db.images.c.id.in_(sorted(place)))).all()
        for row in sorted(rows, key=lambda each: place[each.id]):
            groups.setdefault(row.near, row)
        if len(groups) >= CANDIDATES // 10:
            break
    return list(groups.values())


def _alike(connection: Connection, free: Select[Any], opinion: StoredAnswers) -> tuple[list[Any], bool]:
    """Return an image that nobody has labeled and those most like it, to the model and to the eye; and whether that shows.

    Where too few are alike, the rest of the group is merely the least unlike.
    """
    rows = connection.execute(free.order_by(db.images.c.rank).limit(LOOKED_AT)).all()
    if not rows:
        return [], False
    seed = random.randrange(min(len(rows), SEEDS))
    bits = hash_bits([row.phash for row in rows])
    guesses = np.zeros((len(rows), len(opinion.classes)), np.float32)
    known = [(place, opinion.row[row.id]) for place, row in enumerate(rows) if row.id in opinion.row]
    if known:
        places, theirs = np.array(known, np.int64).T
        guesses[places] = opinion.probs[theirs]
    same_bits = (bits @ bits[seed] + bits.shape[1]) / 2  # (N,)
    order = np.argsort(-(same_bits / bits.shape[1] + np.sqrt(guesses) @ np.sqrt(guesses[seed])), kind="stable")
    evident = (same_bits >= SAME_BITS) | (guesses @ guesses[seed] >= SAME_CLASS)
    if evident.sum() >= min(LEAST, len(rows)):
        return [rows[place] for place in order if evident[place]], True
    return [rows[place] for place in order], False


def hash_bits(hashes: Sequence[str]) -> NDArray[np.int32]:
    """Return perceptual hashes as rows of -1 and 1, so that a product counts equal bits. (N, 64)"""
    raw = np.frombuffer(bytes.fromhex("".join(hashes)), np.uint8).reshape(len(hashes), HASH_BYTES)
    return np.unpackbits(raw, axis=1).astype(np.int32) * 2 - 1
