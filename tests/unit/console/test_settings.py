"""Tokens, made and revoked; the audit log; the storage: for admins, and the others are told so."""

from __future__ import annotations

import re

import pytest

from shared.domain.entity_ids import IdKinds
from tests.support.api_world import NOW
from tests.unit.console.conftest import Visitor

pytestmark = pytest.mark.requirement("C-01", "C-09")

EVIL = "<img src=x onerror=window.pwned=1>"
SECRET = re.compile(r"eyas_[a-z0-9]+_[0-9a-f]{64}")


def token_of(client):
    return client._headers["Authorization"].removeprefix("Bearer ")


def make(visitor, **fields):
    return visitor.press("/settings/tokens", **({"name": "shop", "role": "client", "recommenders": "", "expires_in": "90d"} | fields))


@pytest.mark.parametrize("role", ["viewer", "operator"])
def test_others_than_admins_see_who_they_are_and_whom_to_ask(world, site, role):
    someone = Visitor(site, token_of(world.holder(role, ["m"])))
    text = someone.get("/settings").text
    assert "holder-1" in text and f"yours has the role {role}" in text
    assert "Create a token" not in text
    assert "Only admins can read the audit log" in someone.get("/settings/audit").text
    assert "Only admins can see the storage" in someone.get("/settings/storage").text
    assert make(someone).status_code == 403
    assert someone.press("/settings/storage/collect", once="x").status_code == 403
    assert len(world.tokens.list()) == 1 and world.swept == []


def test_a_token_is_shown_once_and_kept_by_no_cache(world, visitor):
    answer = make(visitor, recommenders="m, books", expires_in="12h")
    assert answer.status_code == 200
    assert answer.headers["cache-control"] == "no-store"
    assert "set-cookie" not in answer.headers and "location" not in answer.headers
    (secret,) = set(SECRET.findall(answer.text))
    (token,) = world.tokens.list()
    assert (token.name, token.role, token.recommenders) == ("shop", "client", frozenset({"m", "books"}))
    assert Visitor(visitor._client._app, secret).get("/").status_code == 403, "it is good, and a client's"
    again = visitor.get("/settings").text
    assert "shop" in again and not SECRET.search(again)
    assert not SECRET.search(visitor.get("/settings/audit").text)


def test_a_token_for_ever_and_for_all(world, visitor):
    assert make(visitor, expires_in="never", role="viewer").status_code == 200
    (token,) = world.tokens.list()
    assert (token.expires_at, token.recommenders) == (None, None)


@pytest.mark.parametrize(
    "fields, said",
    [
        ({"name": "A b"}, "lower-case letters"),
        ({"name": "owner"}, "is reserved"),
        ({"recommenders": "No!"}, "recommender&#39;s name"),
        ({"expires_in": "soon"}, "expires_in"),
        ({"role": "king"}, "role"),
    ],
)
def test_what_is_wrong_is_said_where_it_was_asked_and_what_was_typed_stays(world, visitor, fields, said):
    answer = make(visitor, **({"name": "typed-name"} | fields))
    assert answer.status_code == 422
    assert "No token was created" in answer.text and said in answer.text
    assert "typed-name" in answer.text or "name" in fields
    assert world.tokens.list() == []


def test_the_same_form_sent_twice_makes_one_token(world, visitor):
    assert make(visitor).status_code == 200
    answer = make(visitor)
    assert answer.status_code == 409 and "No token was created" in answer.text
    assert len(world.tokens.list()) == 1


def test_a_revoked_token_is_refused_from_then_on(world, site, visitor):
    other = Visitor(site, token_of(world.holder("viewer")))
    assert other.get("/").status_code == 200
    id = world.tokens.list()[0].id
    assert f'action="/settings/tokens/{id}/revoke"' in visitor.get("/settings").text
    assert visitor.press(f"/settings/tokens/{id}/revoke").status_code == 303
    assert other.get("/").headers["location"] == "/login"
    after = visitor.get("/settings").text
    assert "revoked" in after and f"/settings/tokens/{id}/revoke" not in after


def test_the_audit_log_is_filtered_and_paged(world, visitor):
    for number in range(30):
        make(visitor, name=f"holder-{number}")
    first = visitor.get("/settings/audit").text
    assert first.count("POST /v1/tokens</a>") == 25
    older = re.search(r'rel="next" href="([^"]+)"', first).group(1).replace("&amp;", "&")
    assert visitor.get(older).text.count("POST /v1/tokens</a>") == 5
    assert "No entry matches" in visitor.get("/settings/audit?actor=nobody").text
    assert "No entry matches" in visitor.get(f"/settings/audit?until={NOW:%Y-%m-%dT%H:%M}").text
    kept = visitor.get(f"/settings/audit?actor=owner&since={NOW:%Y-%m-%dT%H:%M}").text
    assert "actor=owner&amp;since=" in kept, "the filters go on to the next page"


def test_a_wrong_moment_is_told_beside_the_filters(visitor):
    text = visitor.get("/settings/audit?since=yesterday").text
    assert 'role="alert"' in text and "<code>since</code>" in text


def test_the_storage_is_looked_at_before_anything_goes(world, visitor):
    assert world.swept == []
    text = visitor.press("/settings/storage/look", once="a").text
    assert "Nothing was changed. This would be collected:" in text and "m 1" in text
    assert world.swept == [True]
    assert "Collected:" in visitor.press("/settings/storage/collect", once="b").text
    assert world.swept == [True, False]


def test_who_is_scoped_is_told_that_files_are_shared(world, site):
    someone = Visitor(site, token_of(world.holder("admin", ["m"])))
    assert "a token without a scope" in someone.get("/settings/storage").text


def test_what_others_named_stays_text(world, visitor):
    assert EVIL not in make(visitor, name=EVIL, recommenders=EVIL, expires_in=EVIL).text
    for name in ("actor", "recommender", "action", "since", "until"):
        answer = visitor.get(f"/settings/audit?{name}={EVIL}")
        assert EVIL not in answer.text


def test_the_theme_button_of_a_forms_answer_leads_back_to_the_form(visitor):
    answer = visitor.send("/settings/tokens", word="0" * 64)
    assert 'name="next" value="/"' in answer.text


@pytest.mark.requirement("U-11")
def test_a_user_is_forgotten_by_an_operator_and_its_id_is_not_shown_again(world, site):
    world.add_recommender()
    world.recommenders.fix_ids("m", IdKinds(user="integer"))
    someone = Visitor(site, token_of(world.holder("operator", ["m"])))
    assert "Forget a user" in someone.get("/settings/storage").text
    text = someone.press("/settings/storage/forget", user=" 4711 ", recommender="", once="a").text
    assert "m: the user is forgotten." in text and "4711" not in text and "1, 2" in text
    assert world.forgotten == [("m", 4711)]
    refused = someone.press("/settings/storage/forget", user="ada", recommender="", once="b")
    assert refused.status_code == 422 and "no recommender has users with such an id" in refused.text
    viewer = Visitor(site, token_of(world.holder("viewer", ["m"])))
    assert "Forget a user" not in viewer.get("/settings/storage").text
    assert viewer.press("/settings/storage/forget", user="1", recommender="", once="c").status_code == 403
