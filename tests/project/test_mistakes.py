"""`mma review` on a project: planted mistakes of people are found; audit images are left out."""

from __future__ import annotations

import json
from uuid import UUID, uuid4

import pytest
from typer.testing import CliRunner

from mma.cli import commands
from mma.project import Answer
from mma.project.review import find_mistakes
from mma.project.worker.features import compute_features, live_config, open_ready_pool
from tests.project import shapes

NAMED = ("bars", "columns", "rings")


@pytest.fixture(autouse=True)
def own_data(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("MMA_DATA", str(tmp_path_factory.mktemp("data")))


def answer(project, image: str, name: str | None, by: str = "ann", **values) -> UUID:
    ids = {klass.name: klass.id for klass in project.classes()}
    given = Answer(
        id=uuid4(),
        images=[image],
        kind="label" if name else "cannot_tell",
        class_id=ids[name] if name else None,
        by=by,
        **values,
    )
    return UUID(project.answer(given)[0].id)


@pytest.fixture
def made(tmp_path):
    """Half of the images of three kinds are labeled; of the fourth kind nobody has said anything."""
    project, kinds = shapes.shape_project(tmp_path, 160)
    free = [image for image in kinds if not project.is_audit(image)]
    labeled = [image for image in free if kinds[image] in NAMED][:60]
    wrong = labeled[5:45:13]  # four of them
    for image in labeled:
        kind = kinds[image]
        answer(project, image, NAMED[(NAMED.index(kind) + 1) % 3] if image in wrong else kind)
    yield project, kinds, wrong
    project.close()


def names(project, images) -> set[str]:
    known = {image.id: image.name for image in project.images()}
    return {known[image] for image in images}


def test_wrong_labels_are_found_and_the_unnamed_kind_too(made):
    project, kinds, wrong = made
    before = project.seq()
    found = find_mistakes(project)
    assert len(names(project, wrong) & {suspect.file for suspect in found.suspects}) >= 3  # of 4
    assert len(found.suspects) <= 6
    truth = {image.name: kinds[image.id] for image in project.images()}
    for suspect in found.suspects:
        if suspect.file in names(project, wrong):
            assert suspect.likely == truth[suspect.file] != suspect.label
            assert suspect.by == "ann"
    assert {truth[file] for file in found.unknown_groups[0]} == {"slopes"}
    assert project.seq() == before  # nothing is changed


@pytest.mark.parametrize("plain", [False, True])
def test_while_photos_are_prepared_those_that_are_take_part_and_no_other_is_computed(made, plain):
    project, _, wrong = made
    settings = live_config(project).views
    stored = settings.model_copy(update={"mirror": False, "crops": 0}) if plain else settings
    free = [image for image in project.images() if not image.audit]
    some = [image for image in free if image.id not in project.labels().ids][:20]
    compute_features(project.root, stored, some, print)
    found = find_mistakes(project)
    pool = open_ready_pool(project, free, ())
    assert pool.views.settings == stored
    assert {image.id for image in pool.images} == {*(image.id for image in some), *(set(project.labels().ids))}
    assert len(names(project, wrong) & {suspect.file for suspect in found.suspects}) >= 3
    assert "among the 80 photos that are prepared so far" in found.notes[0]


def test_audit_images_are_not_judged(made):
    project, kinds, _ = made
    audit = [image for image in kinds if project.is_audit(image)]
    for image in audit:
        answer(project, image, "bars")
    found = find_mistakes(project)
    listed = {suspect.file for suspect in found.suspects} | {file for group in found.unknown_groups for file in group}
    assert found.unknown_groups
    assert not names(project, audit) & listed


def test_people_who_differ_and_what_cannot_be_told_are_counted(made):
    project, kinds, _ = made
    free = [image for image in kinds if not project.is_audit(image)]
    one, two = [image for image in free if kinds[image] == "slopes"][:2]
    answer(project, one, "bars")
    answer(project, one, "rings", by="bob")
    undone = answer(project, two, "bars", by="bob")
    project.undo("bob", undone)
    answer(project, two, None)
    found = find_mistakes(project)
    assert found.disagreements == tuple(names(project, [one]))
    assert found.pairs["ann, bob"].images == 1
    assert [(doubt.folder, doubt.cannot_tell) for doubt in found.doubts] == [("", 1)]


def test_people_agree_on_classes_that_were_merged_step_by_step(tmp_path):
    project, kinds = shapes.shape_project(tmp_path, 24)
    image = next(image for image in kinds if not project.is_audit(image))
    answer(project, image, "bars")
    answer(project, image, "rings", by="bob")
    assert find_mistakes(project).disagreements == tuple(names(project, [image]))
    ids = {klass.name: klass.id for klass in project.classes()}
    project.merge_class(ids["bars"], ids["columns"], "ann")
    project.merge_class(ids["columns"], ids["rings"], "ann")
    assert find_mistakes(project).disagreements == ()
    project.close()


def test_a_second_answer_of_the_same_person_counts_unless_it_corrects_the_first(made):
    project, kinds, _ = made
    slopes = [image for image in kinds if kinds[image] == "slopes" and not project.is_audit(image)]
    for image in slopes[:2]:
        first = answer(project, image, "bars")
        answer(
            project, image, "bars" if image == slopes[0] else "rings", supersedes=None if image == slopes[0] else first
        )
    assert find_mistakes(project).self_agreement["ann"].images == 1


def test_with_few_labels_the_command_says_what_it_did_not_look_for(tmp_path):
    project, kinds = shapes.shape_project(tmp_path, 24)
    for image in list(kinds)[:5]:
        answer(project, image, kinds[image])
    project.close()
    done = CliRunner().invoke(commands(), ["review", str(project.folder)])
    assert done.exit_code == 0, done.output
    assert "are looked for from 20 labels on; there are" in done.stdout


def test_the_command_prints_lines_or_json(made):
    project, _, _ = made
    done = CliRunner().invoke(commands(), ["review", str(project.folder), "--shown", "2"])
    assert done.exit_code == 0, done.output
    assert "labels that look wrong to models that did not see them (which are right about" in done.stdout
    assert "  and " in done.stdout
    assert "groups of similar images that match no class (new classes?): " in done.stdout
    as_json = json.loads(CliRunner().invoke(commands(), ["review", str(project.folder), "--json"]).stdout)
    assert len(as_json["suspects"]) >= 3


def test_a_class_with_a_single_label_leaves_the_others_without_it(tmp_path):
    project, kinds = shapes.shape_project(tmp_path, 80)
    free = [image for image in kinds if not project.is_audit(image)]
    other = next(image for image in free if kinds[image] == "rings")
    for image in [*free[:25], other]:  # all but one are called bars
        answer(project, image, "rings" if image == other else "bars")
    found = find_mistakes(project)
    assert found.predicted is not None  # also by a model that knows one class only
    project.close()


def test_it_says_how_far_the_models_that_doubt_labels_can_be_trusted(made):
    project, _, wrong = made
    found = find_mistakes(project)
    assert found.predicted is not None
    assert 0.6 < found.predicted <= 1 - len(wrong) / 60 + 0.05
