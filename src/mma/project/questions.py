"""Who is asked about which image: picks of the model, a share of audit images, leases so that no two people get the same."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

from sqlalchemy import Connection, and_, delete, exists, func, select, update

from mma.project.labels import database as db
from mma.project.labels.events import LEASE, add_counts, chunks, count, read_counters
from mma.project.records import SECOND_LOOKS, Item, Pick

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
    moment = time.time()
    _renew(connection, by, holding, moment, rules.lease)
    lost = _lost(connection, by, n, holding, moment, rules.lease)
    taken = {item.image for item in lost} | set(holding)
    turn, new = _Turn(connection, by, rules, moment), list[Item]()
    while len(lost) + len(new) < n:
        item = turn.choose(taken)
        if item is None:
            break
        taken.add(item.image)
        new.append(item)
    _lease(connection, by, new, moment, rules.lease)
    return lost + new


def is_live(moment: float) -> Any:
    """Tell in SQL whether a lease holds. One from the future was taken before the clock was set back."""
    return and_(db.leases.c.until > moment, db.leases.c.taken <= moment + 1)


def _renew(connection: Connection, by: str, holding: Collection[str], moment: float, lease: float) -> None:
    for part in chunks(sorted(holding)):
        mine = and_(db.leases.c.by == by, db.leases.c.image.in_(part))
        connection.execute(update(db.leases).where(mine).values(taken=moment, until=moment + lease))


def _lost(connection: Connection, by: str, n: int, holding: Collection[str], moment: float, lease: float) -> list[Item]:
    """Return images leased to this person that their page no longer holds, as after a reload."""
    c = db.leases.c
    asked = [c[name].label(f"asked_{name}") for name in ("provenance", "why", "suggestion", "model")]
    query = (
        select(db.images, *asked)
        .join(db.leases, c.image == db.images.c.id)
        .where(c.by == by, is_live(moment))
        .order_by(c.taken, db.images.c.rank)
    )
    held = [row for row in connection.execute(query) if row.id not in holding]
    rows = [row for row in held if row.open or row.asked_provenance in SECOND_LOOKS][:n]
    _renew(connection, by, [row.id for row in rows], moment, lease)
    return [_item(row, row.asked_provenance, row.asked_why, row.asked_model, row.asked_suggestion) for row in rows]


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


def _lease(connection: Connection, by: str, items: Sequence[Item], moment: float, lease: float) -> None:
    c, until = db.leases.c, moment + lease
    connection.execute(delete(db.leases).where(c.image.in_([item.image for item in items]), c.by == by))  # run out
    rows = [
        db.LeaseRow(i.image, by, moment, until, i.provenance, i.why, _as_json(i.suggestion), i.model) for i in items
    ]
    db.insert_rows(connection, db.leases, rows)
    audits = sum(item.provenance == "audit" for item in items)
    add_counts(connection, Counter({"asked": len(items), "asked_audit": audits}))


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
