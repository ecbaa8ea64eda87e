"""Invitations: what an annotator's token may do, route by route, and when it no longer does."""

from __future__ import annotations

import json
from typing import Any
from uuid import uuid4

import pytest
from starlette.testclient import TestClient

from mma.errors import UserError
from mma.project import Project
from mma.web.app import ROUTES, make_app
from mma.web.security import ANNOTATOR_READS, ANNOTATOR_SENDS, Guard, Invitations
from tests.web.page import KEYS, OURS, PORT

OWNERS = {
    ("GET", "/api/labels"),
    ("GET", "/api/map"), ("GET", "/api/results"), ("GET", "/api/invitations"), ("POST", "/api/invite"),
    ("POST", "/api/classes"), ("POST", "/api/deep"), ("POST", "/api/review"), ("POST", "/api/export"),
    ("GET", "/api/download"), ("POST", "/api/browse"), ("POST", "/api/try"),
    ("POST", "/api/find"), ("POST", "/api/heat"), ("POST", "/api/goal"), ("POST", "/api/model"),
}  # fmt: skip


@pytest.fixture
def invitations(project: Project) -> Invitations:
    return Invitations(project.layout.state)


@pytest.fixture
def visit(project: Project, invitations: Invitations) -> Any:
    """Open the page with a cookie."""
    app = make_app(project, "", invitations)
    app.state.page.ending = lambda: True
    guard = Guard(app, KEYS, frozenset({f"127.0.0.1:{PORT}"}), project.settings.id, invitations=invitations)
    headers = {"origin": OURS, "x-mma": project.settings.id, "content-type": "application/json"}

    def begin(cookie: str = "") -> TestClient:
        cookies = {f"mma-{PORT}": cookie} if cookie else {}
        return TestClient(guard, base_url=OURS, headers=headers, cookies=cookies, raise_server_exceptions=False)

    return begin


def answer(by: str, image: str, **rest: Any) -> str:
    return json.dumps({"id": str(uuid4()), "images": [image], "kind": "label", "class_id": 0, "by": by, **rest})


def test_route_by_route_an_annotator_reaches_what_labeling_needs_and_nothing_else(visit, invitations, project):
    ann = visit(invitations.make("ann", "now"))
    image = project.images()[0].id
    reached = set()
    for route in ROUTES:
        path = route.path.format(name="app.js", image=image, size="thumb")
        for method in sorted((route.methods or set()) - {"HEAD"}):
            found = ann.request(method, path, content="{}" if method == "POST" else None)
            assert (found.status_code == 403) == ((method, route.path) in OWNERS), (method, path, found.text)
            if found.status_code != 403:
                reached.add((method, route.path))
    allowed = {("GET", path) for path in ANNOTATOR_READS} | {("POST", path) for path in ANNOTATOR_SENDS}
    assert reached == allowed | {("GET", "/static/{name}"), ("GET", "/images/{image}/{size}")}
    assert ann.get("/api/anything").status_code == 403  # a route that is added later is the owner's until it is listed


def test_an_annotator_answers_under_their_own_name_alone(visit, invitations, project):
    ann, owner = visit(invitations.make("ann", "now")), visit(KEYS.session)
    image = project.images()[0].id
    assert ann.get("/api/state").json()["project"]["by"] == "ann"
    assert ann.post("/api/answers", content=answer("bob", image)).status_code == 403
    assert ann.post("/api/answers", content=answer("ann", image)).status_code == 200
    given = json.loads(answer("bob", project.images()[1].id))
    assert owner.post("/api/answers", content=json.dumps(given)).status_code == 200
    undo = {"id": str(uuid4()), "kind": "undo", "by": "ann", "supersedes": given["id"]}
    assert "another person" in ann.post("/api/answers", content=json.dumps(undo)).json()["error"]
    review = ann.post("/api/answers", content=answer("ann", project.images()[1].id, source="review", class_id=1))
    assert review.status_code == 400  # nothing in dispute there
    assert ann.get("/api/recent?by=bob").json() == ann.get("/api/recent?by=ann").json()


def test_a_disagreement_is_settled_by_a_third_person(visit, invitations, project):
    image = project.images()[0].id
    people = {name: visit(invitations.make(name, "now")) for name in ("ann", "bob", "carl")}
    for name, class_id in (("ann", 0), ("bob", 1)):
        people[name].post("/api/answers", content=answer(name, image, class_id=class_id))
    assert people["ann"].get("/api/disagreements").json()["images"] == []  # their own dispute
    (found,) = people["carl"].get("/api/disagreements").json()["images"]
    assert [voice[:3] for voice in found["voices"]] == [["ann", "label", 0], ["bob", "label", 1]]
    reply = people["carl"].post("/api/answers", content=answer("carl", image, class_id=0, source="review"))
    assert reply.status_code == 200
    assert project.labels().class_ids == (0,)
    assert project.how([image])[image] == "decided by carl; cat by ann, dog by bob"


def test_a_withdrawn_invitation_closes_the_page_at_once_and_after_a_restart(visit, invitations, project):
    token = invitations.make("ann", "now")
    ann, owner = visit(token), visit(KEYS.session)
    assert ann.get("/api/state").status_code == 200
    (listed,) = owner.get("/api/invitations").json()["invitations"]
    change = json.dumps({"do": "revoke", "id": listed["id"], "by": "me"})
    assert owner.post("/api/invite", content=change).status_code == 200
    assert ann.get("/api/state").status_code == 401
    assert visit().get(f"/?token={token}").status_code == 401
    assert Invitations(project.layout.state).find(token) is None


def test_tokens_are_long_stored_as_hashes_in_a_private_file_and_swapped_for_a_strict_cookie(visit, invitations):
    token = invitations.make("ann", "now")
    assert len(token) * 6 >= 192
    assert token not in invitations.path.read_text()
    assert invitations.path.stat().st_mode & 0o077 == 0
    entered = visit().get(f"/?token={token}")
    assert entered.status_code == 200
    assert {"HttpOnly", "SameSite=strict"} <= set(entered.headers["set-cookie"].split("; "))
    with pytest.raises(UserError, match="invited already"):
        invitations.make("Ann", "now")


def test_two_browsers_under_one_name_are_told(visit):
    owner = visit(KEYS.session)
    here = [json.dumps({"by": "ann", "browser": str(uuid4())}) for _ in range(2)]
    assert owner.post("/api/here", content=here[0]).json() == {"twice": False}
    assert owner.post("/api/here", content=here[0]).json() == {"twice": False}
    assert owner.post("/api/here", content=here[1]).json() == {"twice": True}
