"""Who is asked about what: leases, picks, the audit share, later, several people."""

from __future__ import annotations

import threading
from collections import Counter
from uuid import uuid4

import pytest
from sqlalchemy import event

from bench.project import synthetic_project
from mma.project import Answer, Pick, create_project, open_project
from mma.project import questions as queue_module


def ids(items):
    return [item.image for item in items]


def test_r5_no_image_is_served_to_two_people_at_once(project):
    ann, bob = ids(project.next("ann", 8)), ids(project.next("bob", 8))
    assert len(ann) == len(bob) == 8
    assert not set(ann) & set(bob)


def test_r5_people_who_ask_at_the_same_moment_get_different_images(project):
    found: dict[str, list[str]] = {}

    def ask(name):
        found[name] = ids(project.next(name, 4))

    threads = [threading.Thread(target=ask, args=(f"p{number}",)) for number in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    served = [image for images in found.values() for image in images]
    assert len(served) == len(set(served)) == 20


def test_r5_a_lease_that_ran_out_goes_to_somebody_else(project, monkeypatch):
    held = set(ids(project.next("ann", 20)))
    assert project.next("bob", 20) == []
    clock = queue_module.time.time() + queue_module.LEASE + 1
    monkeypatch.setattr(queue_module.time, "time", lambda: clock)
    assert set(ids(project.next("bob", 20))) == held


def test_r5_a_page_that_asks_for_more_keeps_what_it_holds(project, monkeypatch):
    begun = queue_module.time.time()
    held = ids(project.next("ann", 4))
    for part in (0.6, 1.2):  # of the time that a lease lasts
        monkeypatch.setattr(queue_module.time, "time", lambda part=part: begun + part * queue_module.LEASE)
        project.next("ann", 0, holding=held)
    assert not set(held) & set(ids(project.next("bob", 20)))


def test_after_a_reload_nobody_is_asked_what_somebody_else_has_answered_meanwhile(project, label):
    held = ids(project.next("ann", 4))
    label(project, held[0], by="bob")
    assert sorted(ids(project.next("ann", 3))) == sorted(held[1:])


def test_a_pick_that_was_put_off_comes_behind_the_other_picks(project, label):
    pool = [image.id for image in project.images() if not image.audit][:3]
    project.put_picks([Pick(image) for image in pool], 1)
    label(project, pool[0], kind="later")
    assert [image for image in ids(project.next("ann", 8)) if image in pool] == [*pool[1:], pool[0]]


def test_a_clock_set_back_does_not_lock_images_away(project, monkeypatch):
    held = set(ids(project.next("ann", 20)))
    day_before = queue_module.time.time() - 86_400
    monkeypatch.setattr(queue_module.time, "time", lambda: day_before)
    assert set(ids(project.next("bob", 20))) == held


def test_the_page_keeps_what_it_holds_and_gets_only_new_images(project):
    first = ids(project.next("ann", 8))
    second = ids(project.next("ann", 8, holding=first))
    assert not set(first) & set(second)


def test_after_a_reload_a_person_gets_back_what_they_held(project):
    first = ids(project.next("ann", 4))
    assert set(ids(project.next("ann", 4))) == set(first)


def test_what_a_person_gives_back_is_free_at_once(project):
    held = set(ids(project.next("ann", 20)))
    project.release("ann")
    assert set(ids(project.next("bob", 20))) == held


def test_answered_images_are_not_asked_again(project, label):
    seen = set()
    while items := project.next("ann", 3):
        for item in items:
            assert item.image not in seen
            seen.add(item.image)
            label(project, item.image)
    assert len(seen) == 20
    assert project.counts().left == 0


def test_picks_are_asked_in_their_order_with_their_reason(project):
    pool = [image.id for image in project.images() if not image.audit][:5]
    suggestion = [(0, 0.75), (1, 0.25)]
    queued = project.put_picks([Pick(image, f"why {image[:4]}", 1.0, "query", suggestion) for image in pool], 7)
    items = [item for item in project.next("ann", 9) if item.provenance == "query"]
    assert queued == 5
    assert ids(items) == pool
    assert all(item.why == f"why {item.image[:4]}" and item.suggestion == suggestion for item in items)
    assert all(item.model == 7 for item in items)


def test_new_picks_replace_the_queue_but_not_what_is_leased(project):
    pool = [image.id for image in project.images() if not image.audit]
    project.put_picks([Pick(image, "old") for image in pool[:3]], 1)
    held = project.next("ann", 3)
    project.put_picks([Pick(image, "new") for image in pool[3:6]], 2)
    project.release("bob")
    again = project.next("ann", 3)
    assert again == held
    fresh = [item for item in project.next("ann", 3, holding=ids(held)) if item.provenance == "query"]
    assert {item.why for item in fresh} == {"new"}


def test_audit_and_settled_and_unknown_images_are_left_out_of_picks(project, label):
    audit = next(image.id for image in project.images() if image.audit)
    pool = [image.id for image in project.images() if not image.audit]
    label(project, pool[0])
    assert project.put_picks([Pick(audit), Pick(pool[0]), Pick("0" * 64), Pick(pool[1]), Pick(pool[1])], 1) == 1


def test_two_questions_in_five_are_audit_at_first_and_blind(tmp_path, picture, label):
    for number in range(120):
        picture(tmp_path / "photos" / f"{number}.png", number)
    project = create_project(tmp_path / "photos", classes=["cat"])
    project.index()
    project.put_picks([Pick(image.id, "w", 1.0, "query", [(0, 1.0)]) for image in project.images()], 1)
    asked = []
    while len(asked) < 50:
        for item in project.next("ann", 5):
            asked.append(item)
            assert label(project, item.image).provenance == item.provenance
    audits = [item for item in asked if item.provenance == "audit"]
    assert len(audits) == 20
    assert all(item.suggestion is None for item in audits)
    assert all(project.is_audit(item.image) == (item.provenance == "audit") for item in asked)
    project.close()


def test_later_puts_an_image_behind_all_others(project, label):
    first = project.next("ann", 1)[0].image
    label(project, first, kind="later")
    order = []
    while items := project.next("ann", 1):
        order.append(items[0].image)
        label(project, items[0].image)
    assert order[-1] == first
    assert len(order) == 20


def test_cannot_tell_is_not_asked_again_and_stays_unlabeled(project, label):
    image = project.next("ann", 1)[0].image
    label(project, image, kind="cannot_tell")
    assert image not in ids(project.next("bob", 20))
    assert project.labels().cannot_tell == (image,)
    assert len(project.labels()) == 0


def test_excluded_images_leave(project, label):
    image = project.next("ann", 1)[0].image
    label(project, image, kind="exclude")
    counts = project.counts()
    assert (counts.excluded, counts.left, counts.labeled) == (1, 19, 0)
    assert project.labels().excluded == (image,)


def test_with_overlap_each_image_is_asked_of_two_people_and_no_third(photos, store, label):
    project = create_project(photos, classes=["cat"], store=store, overlap=2)
    project.index()
    asked = {name: [] for name in ("ann", "bob", "cem")}
    for _ in range(20):
        for name, images in asked.items():
            for item in project.next(name, 1):
                images.append(item.image)
                label(project, item.image, by=name)
    everyone = [image for images in asked.values() for image in images]
    assert all(len(images) == len(set(images)) for images in asked.values())
    assert sorted(everyone) == sorted(2 * [image.id for image in project.images()])
    assert project.counts().left == 0
    project.close()


def test_an_answer_sent_late_keeps_the_reason_it_was_asked_for(project, monkeypatch):
    item = project.next("ann", 1)[0]
    clock = queue_module.time.time() + 10 * queue_module.LEASE
    monkeypatch.setattr(queue_module.time, "time", lambda: clock)
    project.next("bob", 20)
    event = project.answer(Answer(id=uuid4(), images=[item.image], kind="label", class_id=0, by="ann"))[0]
    assert event.provenance == item.provenance


def test_an_undone_answer_stays_with_the_person_who_undid_it(project, label):
    image = project.next("ann", 1)[0].image
    before = label(project, image)
    project.undo("ann")
    assert image not in ids(project.next("bob", 20))
    assert label(project, image).provenance == before.provenance


@pytest.mark.parametrize("n", [1, 8])
def test_leases_are_seen_by_another_process(project, n):
    other = open_project(project.folder)
    try:
        assert not set(ids(project.next("ann", n))) & set(ids(other.next("bob", n)))
    finally:
        other.close()


def test_asking_and_answering_walk_through_no_table(photos, label):
    """Every statement is explained by SQLite: at a million images a scan would take seconds."""
    project = create_project(photos, classes=["cat", "dog"])
    project.index()
    project.put_picks([Pick(image.id) for image in project.images()[:10]], 1)
    seen: dict[str, tuple] = {}

    @event.listens_for(project.store.engine, "before_cursor_execute")
    def note(connection, cursor, statement, parameters, context, executemany):
        seen.setdefault(statement, parameters[0] if executemany else parameters)

    items = project.next("ann", 4)
    label(project, items[0].image)
    label(project, items[1].image, kind="later")
    project.next("ann", 2, holding=[items[2].image])
    project.undo("ann")
    project.counts()
    project.recent("ann")
    project.put_picks([Pick(items[3].image)], 2)
    project.path_of(items[3].image)
    project.mirror.write()
    event.remove(project.store.engine, "before_cursor_execute", note)
    walks = [
        plan for statement, values in seen.items() for plan in explain(project, statement, values) if is_walk(plan)
    ]
    assert len(seen) > 20
    assert walks == []
    project.close()


def explain(project, statement, values):
    if not statement.startswith(("SELECT", "UPDATE", "DELETE")):
        return []
    with project.store.reading() as connection:
        return [row[3] for row in connection.exec_driver_sql("EXPLAIN QUERY PLAN " + statement, values)]


def is_walk(plan):
    large = any(name in plan for name in ("images", "files", "events", "leases"))
    return large and ("SCAN" in plan or "images_to_ask (open=?)" in plan)


def label_together(project, people, held=8):
    """Let people label as their pages do, eight images at a time, until nobody is asked anything new."""
    holding = {name: [] for name in people}
    answered = {name: [] for name in people}
    while True:
        for name in people:
            items = project.next(name, held - len(holding[name]), holding=ids(holding[name]))
            holding[name] += [item for item in items if item.provenance != "again"]
        if not any(holding.values()):
            return answered
        for name, items in holding.items():
            for item in items[:3]:
                project.answer(Answer(id=uuid4(), images=[item.image], kind="label", class_id=0, by=name))
                answered[name].append(item.image)
            del items[:3]


# Larger pools were run once: 8 people, 400 images, both databases. An answer waits for the disk twice.
@pytest.mark.parametrize(("people", "pool", "k"), [(2, 20, 2), (3, 20, 2), (4, 400, 3), (8, 20, 2), (8, 20, 8)])
def test_with_overlap_people_who_hold_eight_images_each_are_all_asked(tmp_path, store, people, pool, k):
    project = synthetic_project(tmp_path, pool, store, overlap=k)
    names = [f"p{number}" for number in range(people)]
    first = {name: ids(project.next(name, 8)) for name in names}
    assert sum(map(len, first.values())) == min(8 * people, pool * k)  # nobody starves while images are free
    if pool <= 20:
        for name in names:
            project.release(name)
        answered = label_together(project, names)
        assert all(len(images) == len(set(images)) for images in answered.values())
        everyone = Counter(image for images in answered.values() for image in images)
        assert everyone == dict.fromkeys((image.id for image in project.images()), k)
    project.close()


def test_with_overlap_an_answer_ends_only_the_lease_of_the_person_who_gave_it(photos, label):
    project = create_project(photos, classes=["cat"], overlap=2)
    project.index()
    held = ids(project.next("ann", 20))
    assert set(ids(project.next("bob", 20))) == set(held)
    label(project, held[0], by="ann")
    assert project.next("cem", 20) == []  # bob still holds it
    assert set(ids(project.next("bob", 20))) == set(held)
    project.close()


def test_with_overlap_later_is_asked_again_of_the_same_person(photos, label):
    project = create_project(photos, classes=["cat"], overlap=2)
    project.index()
    first = project.next("ann", 1)[0].image
    label(project, first, kind="later", by="ann")
    order = []
    while items := project.next("ann", 1):
        order.append(items[0].image)
        label(project, items[0].image, by="ann")
    assert order[-1] == first
    project.close()
