"""Two copies of a project are merged: every label means what the person who gave it saw."""

from __future__ import annotations

import random
from uuid import UUID

import pytest
from sqlalchemy import create_engine, insert

from mma.errors import UserError
from mma.project.labels import database as db
from mma.project.labels import events as rules
from mma.project.labels.repair import fill, merge_events
from mma.project.records import Answer, Klass

IMAGES = [f"{number:064x}" for number in range(5)]
HISTORIES = 40  # 200 were run once
NAMES = ["car", "owl", "cat", "Car", "dog"]


class Copy:
    """A project in memory: its events, and what people do to it."""

    def __init__(self, events, draw):
        self.draw, self.connection = draw, create_engine("sqlite://").connect()
        fill(self.connection, events, [], 1)
        empty = {
            "width": 1,
            "height": 1,
            "phash": "0",
            "audit": 0,
            "present": 1,
            "open": 1,
            "answers": 0,
            "deferred": 0,
        }
        rows = [{"id": image, "name": image[-2:], "near": image, "rank": 0, **empty} for image in IMAGES]
        self.connection.execute(insert(db.images), rows)

    def events(self):
        return rules.events_after(self.connection, 0)

    def classes(self):
        return rules.read_classes(self.connection)

    def uuid(self):
        return UUID(int=self.draw.getrandbits(128), version=4)

    def change(self, kind, class_id, value):
        batch = str(self.uuid())
        draft = rules.draft(kind, id=batch, batch=batch, by=self.name, class_id=class_id, value=value)
        rules.record(self.connection, [draft], 1)

    name = "ann"

    def label(self, class_id, image=None):
        image = image or self.draw.choice(IMAGES)
        answer = Answer(id=self.uuid(), images=[image], kind="label", class_id=class_id, by=self.name)
        return rules.write_answer(self.connection, answer, 1)[0]

    def act(self):
        """Do something that the page allows; what it refuses does not happen."""
        known = self.classes() or [Klass(0, "")]
        kind = self.draw.choice(["add", "rename", "merge", "back", "delete", "label", "label", "undo"])
        one, other = self.draw.choice(known).id, self.draw.choice(known).id
        name = self.draw.choice(NAMES)
        try:
            if kind == "add":
                self.change("class_add", rules.free_class_id(self.connection), rules.check_name(name, known))
            elif kind == "rename":
                self.change("class_rename", one, rules.check_name(name, known, besides=one))
            elif kind == "merge":
                rules.check_merge(known, one, other)
                self.change("class_merge", one, str(other))
            elif kind == "back":
                rules.check_merge(known, one, None)
                self.change("class_merge", one, None)
            elif kind == "delete":
                rules.check_delete(self.connection, one)
                self.change("class_delete", one, None)
            elif kind == "label":
                self.label(one)
            else:
                answer = Answer(id=self.uuid(), kind="undo", by=self.name)
                rules.write_answer(self.connection, answer, 1)
        except UserError:
            pass

    def reading(self):
        """Return the name under which each label is read now, by the id of its event; of undone ones only where there is one."""
        known = self.classes()
        names, roots = {each.id: each.name for each in known}, rules.merge_roots(known)
        events = self.events()
        undone = {each.supersedes for each in events if each.kind == "undo"}
        labels = [each for each in events if each.kind == "label" and (each.class_id in roots or each.id not in undone)]
        return {each.id: names[roots[each.class_id]].casefold() for each in labels}

    def names(self):
        return {each.name.casefold() for each in self.classes() if each.merged_into is None}


def two_copies(draw, actions):
    first = Copy([], draw)
    for number, name in enumerate(("car", "owl")):
        first.change("class_add", number, name)
    for _ in range(actions):
        first.act()
    second = Copy(first.events(), draw)
    second.name = "bob"
    return first, second


def check_merge(here, there):
    """Merge, and compare how labels read before and after; return whether it was refused."""
    before, copied, seq = here.reading(), there.reading(), len(here.events())
    try:
        merge_events(here.connection, there.events(), 1)
    except UserError:
        assert len(here.events()) == seq
        return True
    after, in_use = here.reading(), here.names()
    undone = {each.supersedes for each in here.events() if each.kind == "undo"}
    assert {*before, *copied} - undone <= set(after) <= {each.id for each in here.events()}
    assert len(in_use) == sum(each.merged_into is None for each in here.classes())
    for label, name in after.items():
        seen = {side[label] for side in (before, copied) if label in side}
        # Renamed or merged by somebody, never another class's name.
        assert name in seen or label in undone or not seen & in_use
    assert sorted(rules.replay(here.events())[1]) == here.classes()
    assert merge_events(here.connection, there.events(), 1).events == []
    return False


def test_after_random_histories_every_label_means_what_its_giver_saw():
    refused = 0
    for seed in range(HISTORIES):
        draw = random.Random(seed)
        here, there = two_copies(draw, 3)
        for side in (here, there):
            for _ in range(draw.randint(0, 6)):
                side.act()
        if check_merge(here, there):
            refused += 1
        elif not check_merge(there, here):  # back again: both copies read alike now
            assert here.reading() == there.reading(), seed
    assert refused < HISTORIES / 2, "a merge that could be made was refused too often"


def test_a_new_class_with_the_old_name_of_a_renamed_one_stays_apart():
    here, there = two_copies(random.Random(0), 0)
    old = here.label(0)
    there = Copy(here.events(), there.draw)
    there.change("class_rename", 0, "truck")
    there.change("class_add", 2, "car")
    new = [there.label(2, image).id for image in IMAGES[1:]]
    merge_events(here.connection, there.events(), 1)
    reading = here.reading()
    assert {reading[label] for label in new} == {"car"}
    assert reading[old.id] == "truck"


def test_a_merge_that_would_change_what_labels_mean_is_refused_and_names_the_classes():
    here, there = two_copies(random.Random(0), 0)
    there.change("class_rename", 0, "truck")
    there.change("class_add", 2, "car")
    here.label(0)  # somebody here sees a car
    with pytest.raises(UserError, match="labels of 'car' would be 'truck', and another class 'car'"):
        merge_events(here.connection, there.events(), 1)
    here, there = two_copies(random.Random(0), 0)
    here.change("class_rename", 0, "van")
    there.change("class_rename", 0, "truck")
    with pytest.raises(UserError, match="'car' is called 'van' here and 'truck' there"):
        merge_events(here.connection, there.events(), 1)
    here, there = two_copies(random.Random(0), 0)
    here.change("class_merge", 0, "1")
    there.change("class_merge", 1, "0")
    with pytest.raises(UserError, match="would be merged into itself"):
        merge_events(here.connection, there.events(), 1)


def test_classes_that_are_new_on_both_sides_and_have_one_name_are_one():
    here, there = two_copies(random.Random(0), 0)
    here.change("class_add", 2, "bird")
    there.change("class_add", 2, "cat")
    there.change("class_add", 3, "Bird")
    label = there.label(3)
    merge_events(here.connection, there.events(), 1)
    assert here.reading()[label.id] == "bird"
    assert here.classes()[2:] == [Klass(2, "bird"), Klass(3, "cat"), Klass(4, "Bird", None, 2)]


def test_a_class_deleted_in_one_copy_and_used_in_the_other_comes_back():
    here, there = two_copies(random.Random(0), 0)
    here.change("class_delete", 0, None)
    label = there.label(0)
    merge_events(here.connection, there.events(), 1)
    assert here.reading()[label.id] == "car"
    here, there = two_copies(random.Random(0), 0)
    label = here.label(0)
    there.change("class_delete", 0, None)
    merge_events(here.connection, there.events(), 1)
    assert here.reading()[label.id] == "car"
    merge_events(there.connection, here.events(), 1)
    assert there.reading()[label.id] == "car"


def test_a_class_deleted_in_one_copy_and_unused_in_the_other_is_gone():
    for deletes in ("here", "there"):
        here, there = two_copies(random.Random(0), 0)
        (here if deletes == "here" else there).change("class_delete", 0, None)
        there.label(1)
        merge_events(here.connection, there.events(), 1)
        assert here.classes() == [Klass(1, "owl")]
