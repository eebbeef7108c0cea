"""The session of the console: signing in, and which forms are accepted."""

from __future__ import annotations

import asyncio
import re
from itertools import product
from urllib.parse import quote

import pytest

from services.console import Site
from services.console.session import inside
from services.console.site import HEADERS
from shared.domain.access import Role
from shared.domain.sessions import RENEWED_AFTER, session_text
from tests.support.api_world import NOW, TOKEN, World
from tests.support.identities import RULES, Provider, jwt_with
from tests.unit.console.conftest import HERE, Visitor

pytestmark = pytest.mark.requirement("C-01")


def test_a_stranger_is_led_to_the_door_and_back_to_where_they_went(stranger):
    answer = stranger.get("/?cursor=x")
    assert answer.status_code == 303
    assert answer.headers["location"] == "/login?next=/%3Fcursor%3Dx"
    entered = stranger.send("/login", token=TOKEN, next="/runs?state=failed")
    assert (entered.status_code, entered.headers["location"]) == (303, "/runs?state=failed")
    cookie = entered.headers["set-cookie"]
    assert "HttpOnly" in cookie and "SameSite=lax" in cookie and cookie.startswith("eyas-session-80=eyas_s") and TOKEN not in cookie


def test_a_wrong_token_is_not_kept(stranger, subtests):
    for token in ("", "a-token-of-nobody", "x" * 5000, "a\x00b", "ä"):
        with subtests.test(token=token[:20]):
            answer = stranger.send("/login", token=token, next="/")
            assert answer.status_code == 401
            assert "set-cookie" not in answer.headers
            assert token not in answer.text or not token


@pytest.mark.requirement("U-12")
def test_a_page_renews_the_session_and_open_forms_stay_valid(world, site):
    now = NOW
    world.clock.now = lambda: now
    visitor = Visitor(site)
    first = visitor.cookies["eyas-session-80"]
    assert "set-cookie" not in visitor.get("/").headers
    word = re.search(r'name="word" value="([0-9a-f]+)"', visitor.get("/").text).group(1)
    now = NOW + RENEWED_AFTER
    cookie = visitor.get("/").headers["set-cookie"]
    assert cookie.startswith("eyas-session-80=eyas_s") and first not in cookie and "HttpOnly" in cookie
    visitor.cookies["eyas-session-80"] = cookie.partition(";")[0].partition("=")[2]
    assert "set-cookie" not in visitor.get("/").headers
    assert visitor.send("/logout", word=word).headers["location"] == "/login"
    assert visitor.get("/").headers["location"] == "/login"


@pytest.mark.requirement("U-12")
def test_who_lost_every_role_is_told_so_and_can_sign_in_as_another():
    world = World(provider=Provider(), role_rules=RULES)
    visitor = Visitor(Site(world.app), jwt_with(Role.VIEWER, None))
    after_restart = World(provider=Provider(), role_rules=(), engine=world.engine)
    site = Site(after_restart.app)
    answer = Visitor(site, session=visitor.cookies["eyas-session-80"]).get("/runs")
    assert answer.status_code == 403 and "no group of &#39;ada&#39; has a role here" in answer.text
    assert 'action="/login"' in answer.text and 'eyas-session-80=""' in answer.headers["set-cookie"]


@pytest.mark.requirement("U-12")
@pytest.mark.parametrize(
    "cookie", ["", "{", "null", "[]", "{}", '{"state": 1}', '{"state": "\\ud800", "nonce": "", "verifier": "", "next": "/"}']
)
def test_a_broken_cookie_of_a_sign_in_is_told_in_one_line(world, cookie):
    visitor = Visitor(Site(world.app, provider=Provider()), token=None)
    visitor.cookies["eyas-session-80-sign-in"] = quote(cookie)
    answer = visitor.get("/login/callback?code=x&state=y")
    assert answer.status_code == 401 and "began in another browser" in answer.text


@pytest.mark.requirement("U-12")
def test_a_token_is_no_session_cookie(site):
    """The browser of an older release has the token itself in its cookie."""
    assert Visitor(site, session=TOKEN).get("/").headers["location"] == "/login"


def test_no_form_leads_to_another_site(stranger, subtests):
    for path in ("//evil.example", "https://evil.example/", "/\\evil.example", "javascript:alert(1)", "evil", "/a\nb"):
        with subtests.test(path=path):
            assert inside(path) == "/"
            assert stranger.send("/login", token=TOKEN, next=path).headers["location"] == "/"


OTHER_SITES = (
    {},
    {"Sec-Fetch-Site": "cross-site"},
    {"Sec-Fetch-Site": "same-site"},
    {"Sec-Fetch-Site": "none"},
    {"Origin": "http://evil.example"},
    {"Origin": "null"},
    {"Sec-Fetch-Site": "cross-site", "Origin": "http://test"},
)


def test_forms_of_other_sites_are_refused(visitor, subtests):
    form = {"Content-Type": HERE["Content-Type"]}
    for path, headers in product(("/login", "/logout", "/theme"), OTHER_SITES):
        with subtests.test(path=path, headers=headers):
            answer = visitor.send(path, form | headers, token=TOKEN, theme="dark", next="/")
            assert answer.status_code == 403
            assert "set-cookie" not in answer.headers


def test_a_form_needs_the_word_of_who_is_signed_in(world, site, visitor):
    other = Visitor(site, world.holder("viewer")._headers["Authorization"].removeprefix("Bearer "))
    assert visitor.send("/logout").status_code == 403
    assert visitor.send("/logout", word="0" * 64).status_code == 403
    theirs = re.search(r'name="word" value="([0-9a-f]+)"', other.get("/").text).group(1)
    assert visitor.send("/logout", word=theirs).status_code == 403
    assert visitor.press("/logout").status_code == 303


def test_a_form_of_another_kind_or_too_long_is_not_taken(visitor):
    assert visitor.send("/logout", HERE | {"Content-Type": "text/plain"}, word="x").status_code == 403
    assert visitor.send("/logout", word="x" * (1 << 20)).status_code == 403
    assert visitor.send("/logout", **{f"f{n}": "x" for n in range(300)}).status_code == 403


def test_every_answer_forbids_what_a_page_needs_not(visitor, stranger):
    for answer in (visitor.get("/"), stranger.get("/login"), visitor.get("/nowhere"), stranger.send("/logout")):
        for name, value in HEADERS.items():
            assert answer.headers[name] == value
    assert "unsafe" not in HEADERS["Content-Security-Policy"]


def test_the_api_is_as_if_there_were_no_pages(world, visitor, stranger):
    assert stranger.get("/healthz").json() == {"status": "ok"}
    assert stranger.get("/v1/runs").status_code == 401
    assert visitor.get("/v1/runs").status_code == 401, "a cookie opens no door of the API: what a page of another site sends brings it too"


def test_a_client_has_no_pages_and_is_told_so(world, site):
    someone = Visitor(site, world.holder("client")._headers["Authorization"].removeprefix("Bearer "))
    answer = someone.get("/")
    assert answer.status_code == 403
    assert "viewer" in answer.text


def test_what_was_typed_is_not_lost_with_the_session(world, site, visitor):
    """A spec takes long to write, and a session ends."""
    evil = "name: m\n</textarea><script>alert(1)</script>\n"
    for gone in (Visitor(site, None), Visitor(site, session=session_text("s0000000000000009", b"gone" * 4, b"gone" * 4))):
        answer = gone.send("/recommenders/m/spec/check", HERE | {"Referer": "http://test/recommenders/m/spec"}, spec=evil, word="x")
        assert answer.status_code == 401
        assert "name: m\n&lt;/textarea&gt;&lt;script&gt;" in answer.text and "<script>alert" not in answer.text
        assert 'href="/login?next=%2Frecommenders%2Fm%2Fspec"' in answer.text
    elsewhere = Visitor(site, None).send("/recommenders/m/spec/check", HERE | {"Sec-Fetch-Site": "cross-site"}, spec=evil)
    assert elsewhere.status_code == 401 and "name: m" not in elsewhere.text


def test_what_is_signed_out_meanwhile_leads_to_the_door(world, site):
    someone = Visitor(site, session=session_text("s0000000000000009", b"gone" * 4, b"gone" * 4))
    answer = someone.get("/")
    assert answer.headers["location"] == "/login"
    assert someone.get("/", {"X-Eyas-Live": "1"}).status_code == 401


@pytest.mark.parametrize("address", ["//[", "http://[", "http://[::1"])
def test_what_can_be_no_address_makes_no_page_fail(stranger, address):
    """In the same words as any other that leads elsewhere; who isn't signed in sends it as well."""
    form = {"Content-Type": HERE["Content-Type"]}
    assert stranger.get(f"/login?next={address}").status_code == 200
    assert stranger.send("/login", token=TOKEN, next=address).headers["location"] == "/"
    assert stranger.send("/theme", theme="dark", next=address).headers["location"] == "/"
    assert stranger.send("/theme", form | {"Origin": address}, theme="dark").status_code == 403
    assert stranger.send("/theme", form | {"Origin": "null", "Referer": address}, theme="dark").status_code == 403


def test_who_goes_away_while_sending_a_form_is_no_failure(site, caplog):
    async def gone():
        return {"type": "http.disconnect"}

    async def nobody(message):
        pytest.fail(f"told to nobody: {message}")

    headers = [(name.lower().encode(), value.encode()) for name, value in HERE.items()]
    asyncio.run(site({"type": "http", "method": "POST", "path": "/login", "query_string": b"", "headers": headers}, gone, nobody))
    assert not caplog.records
