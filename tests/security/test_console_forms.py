"""No form of another site is taken, no cookie opens the API, nobody is led away, and no bytes make a page fail."""

from __future__ import annotations

import ast
import asyncio
import re
import sys
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import quote, unquote_to_bytes, urlencode

import httpx
import pytest
from jinja2 import nodes
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from services.console import Site, render
from services.console.session import word
from services.console.site import HEADERS
from shared.domain.sessions import session_text
from tests.security.hostile import listening
from tests.security.surface import SOURCES, TEMPLATES, WORDLESS, fields, filled, shown, taken
from tests.servers.browser import browser
from tests.support.api_world import TOKEN, World
from tests.unit.console.conftest import HERE, Visitor

pytestmark = pytest.mark.requirement("C-01")

FORM = {"Content-Type": HERE["Content-Type"]}
FOREIGN: tuple[dict[str, str], ...] = (
    {},
    {"Sec-Fetch-Site": "cross-site"},
    {"Sec-Fetch-Site": "same-site"},
    {"Sec-Fetch-Site": "none"},
    {"Sec-Fetch-Site": ""},
    {"Origin": "http://evil.example"},
    {"Origin": "http://test.evil.example"},
    {"Origin": "https://eviltest"},
    {"Origin": "null"},
    {"Origin": ""},
    {"Sec-Fetch-Site": "cross-site", "Origin": "http://test"},
    {"Referer": "http://test/"},
)
NO_FORMS = ("application/json", "text/plain", "multipart/form-data; boundary=x", "", "application/x-www-form-urlencodedx")


def furnished() -> World:
    """Something for every button to change."""
    world = World()
    world.add_recommender()
    world.add_run("r1", "failed", stages=("etl",))  # ended, so that its log ends
    world.add_rollout("r1-rollout")
    world.add_version(1)
    world.route(1)
    world.holder("viewer")
    return world


@pytest.fixture
def world() -> World:
    return furnished()


@pytest.fixture
def site(world: World) -> Site:
    return Site(world.app)


@pytest.fixture
def visitor(site: Site) -> Visitor:
    return Visitor(site)


def state(world: World) -> str:
    """All that a button can change, and the log of all that was asked for: who gets as far as the API is in it, refused or not."""
    stores = (world.recommenders.rows, world.runs.rows, world.rollouts.rows, world.registry.given, world.routes.rows, world.tokens.list())
    return repr((stores, world.audit.list(limit=1000), world.swept, world.gateway.asked, world.gateway.recorded, world.woken))


def given(**more: str) -> dict[str, str]:
    """A form that has everything that any action reads."""
    sensible = {
        "name": "intruder",
        "role": "admin",
        "expires_in": "never",
        "recommenders": "",
        "token": TOKEN,
        "next": "/",
        "theme": "dark",
    }
    return {name: sensible.get(name, "1") for name in fields()} | {"once": "x"} | more


def probes(site: Site, path: str) -> Iterator[tuple[str, Callable[[], httpx.Response]]]:
    """Forms that are none of ours: what is wrong with each, and how it is sent."""
    visitor, stranger, other = Visitor(site), Visitor(site, token=None), Visitor(site, session=session_text("s0", b"o" * 16, b"o" * 16))
    at, mine = filled(path), visitor.word
    for headers in FOREIGN:
        yield f"from elsewhere {headers}", lambda headers=headers: visitor.send(at, FORM | headers, **given(word=mine))
    for kind in NO_FORMS:
        yield f"of type {kind!r}", lambda kind=kind: visitor.send(at, HERE | {"Content-Type": kind}, **given(word=mine))
    for method in ("GET", "HEAD", "PUT", "PATCH", "DELETE", "OPTIONS"):
        if method not in ("GET", "HEAD") or path not in shown(site):
            yield (
                f"by {method}",
                lambda method=method: visitor._client.request(
                    method, f"{at}?{urlencode(given(word=mine))}", headers=visitor._headers(HERE)
                ),
            )
    if path in WORDLESS:
        return
    for wrong in ("", "0" * 64, word("another"), mine[:-1], mine.upper(), mine + "0", TOKEN):
        yield f"with the word {wrong[:9]!r}", lambda wrong=wrong: visitor.send(at, **given(word=wrong))
    yield "without a word", lambda: visitor.send(at, **{name: text for name, text in given().items() if name != "word"})
    yield "with the word in the address", lambda: visitor.send(f"{at}?word={mine}", **given(word=""))
    yield "by nobody, with a word of before", lambda: stranger.send(at, **given(word=mine))
    yield "by somebody else, with a word of before", lambda: other.send(at, **given(word=mine))


def accepted(world: World, site: Site, path: str) -> list[str]:
    """The probes that were not refused, or that changed something; and how many there were."""
    tries = list(probes(site, path))
    before, found = state(world), []
    for what, send in tries:
        answer = send()
        if not (answer.status_code in (401, 403, 404, 405) or (answer.status_code == 303 and "login" in answer.headers["location"])):
            found.append(f"{what}: {answer.status_code}")
        if state(world) != before:
            found.append(f"{what}: something was changed")
            before = state(world)
        if any(name in answer.headers.get("set-cookie", "") for name in (TOKEN, "theme=dark")):
            found.append(f"{what}: a cookie was given")
    return found


def test_no_form_of_another_is_taken_by_any_action(world, site):
    paths = taken(site)
    assert len(paths) >= 7 and set(WORDLESS) < set(paths)
    for path in paths:
        assert accepted(world, site, path) == [], path
    sys.stdout.write(f"{sum(len(list(probes(site, path))) for path in paths)} forms of others, by {len(paths)} actions\n")


def test_an_action_that_asks_for_no_word_would_be_noticed(world, site):
    """The test of the test: one that is made without the console's own way of making them."""

    async def open_to_all(request: Any) -> Response:
        return HTMLResponse("done")

    site._pages.routes.append(Route("/new-and-open", open_to_all, methods=["POST"]))
    assert len(accepted(world, site, "/new-and-open")) > 20


def test_the_same_form_is_taken_when_it_is_ours(world, site):
    """So that what is refused above is refused for what was wrong with it."""
    visitor = Visitor(site)
    before = state(world)
    answer = visitor.send("/settings/tokens", **given(word=visitor.word))
    assert answer.status_code == 200 and state(world) != before


def test_a_word_is_worth_nothing_after_its_token_is_revoked(world, site):
    token = world.holder("admin")._headers["Authorization"].removeprefix("Bearer ")
    someone = Visitor(site, token)
    assert someone.get("/settings").status_code == 200
    world.tokens.revoke(world.tokens.list()[0].id, world.clock.now(), "owner")
    before = state(world)
    for path in set(taken(site)) - set(WORDLESS) - {"/logout"}:
        answer = someone.send(filled(path), **given(word=someone.word))
        assert answer.status_code == 401, path
    assert state(world) == before


def test_a_page_of_another_server_of_this_machine_can_send_nothing(world, site):
    """By a real browser, which sends cookies of 127.0.0.1 to all its ports: neither a form nor a fetch of a page there is taken."""
    with browser() as chrome, listening(site) as url, listening(_elsewhere) as evil:
        context = chrome.new_context()
        page = context.new_page()
        page.goto(f"{url}/login")
        page.fill("#token", TOKEN)
        page.click("main button")
        page.wait_for_url(f"{url}/")
        cookies = context.cookies()
        before = state(world)
        session = next(cookie["value"] for cookie in cookies if cookie["name"].startswith("eyas-session-"))
        targets = [[f"{url}{filled(path)}", given(word=word(session))] for path in taken(site)]
        page.goto(evil)
        page.evaluate(_FETCHES, targets)
        for target in targets:
            page.goto(evil)
            with page.expect_navigation():
                page.evaluate(_FORM, target)
            assert page.locator("h1").inner_text() == "Form refused", target[0]
        assert state(world) == before
        assert context.cookies() == cookies
        page.goto(url)
        assert page.locator("h1").inner_text() == "Recommenders", "still signed in"


async def _elsewhere(scope: Any, receive: Any, send: Any) -> None:
    await HTMLResponse("<h1>Win a prize</h1>")(scope, receive, send)


_FETCHES = """(targets) => Promise.allSettled(targets.map(([url, fields]) =>
  fetch(url, { method: "POST", mode: "no-cors", credentials: "include", body: new URLSearchParams(fields) })))"""
_FORM = """([url, fields]) => {
  const form = document.createElement("form");
  form.method = "post"; form.action = url;
  for (const [name, value] of Object.entries(fields)) {
    const field = document.createElement("input");
    field.name = name; field.value = value; form.append(field);
  }
  document.body.append(form); form.submit();
}"""


def test_every_answer_has_the_headers(site, visitor):
    stranger = Visitor(site, token=None)
    answers = [one.get(filled(path)) for one in (visitor, stranger) for path in shown(site)]
    answers += [one.send(filled(path), **given()) for one in (visitor, stranger) for path in taken(site)]
    answers += [visitor.get(path) for path in ("/nowhere", "/static/nothing.css", "/settings/tokens", "//", "/v1", "/V1/runs")]
    answers += [visitor._client.request("TRACE", "/"), visitor._client.request("PUT", "/login")]
    for answer in answers:
        for name, value in HEADERS.items():
            assert answer.headers[name] == value, answer.request.url
        if not answer.request.url.path.startswith("/static/") and answer.headers.get("content-type", "").startswith("text/html"):
            assert answer.headers["cache-control"] == "no-store", answer.request.url


def test_no_cookie_opens_the_api(world, visitor):
    before = state(world)
    for method, path in (
        ("GET", "/v1/runs"),
        ("GET", "/v1/whoami"),
        ("POST", "/v1/tokens"),
        ("POST", "/v1/gc"),
        ("GET", "/openapi.json"),
    ):
        for headers in ({}, {"Origin": "http://test"}, HERE):
            answer = visitor._client.request(
                method, path, headers=visitor._headers(headers), content=urlencode(given(word=visitor.word)) if method == "POST" else None
            )
            assert answer.status_code == 401, path
    assert state(world) == before


ADDRESSES = [
    "//evil.example",
    "///evil.example",
    "/\\evil.example",
    "\\\\evil.example",
    "https://evil.example",
    "https:evil.example",
    "javascript:alert(1)",
    "/\t/evil.example",
    "/\n/evil.example",
    " //evil.example",
    "/%0d%0aSet-Cookie:x=1",
    "/\r\nSet-Cookie: x=1",
    "@evil.example",
    "/.//evil.example",
    "/..//evil.example",
    "http://test@evil.example/",
    "/\u2028/evil.example",
    "/\x00",
    "data:text/html,x",
]


def test_nobody_is_led_away(subtests):
    for where in ADDRESSES:
        with subtests.test(where=where):
            site = Site(furnished().app)
            stranger = Visitor(site, token=None)
            led = [stranger.send("/login", token=TOKEN, next=where), stranger.send("/theme", theme="dark", next=where)]
            led += [stranger.send("/login", token="wrong", next=where), stranger.get(f"/login?next={quote(where)}")]
            for answer in led:
                location = answer.headers.get("location", "/")
                target = httpx.URL("http://test/login").join(location)
                assert (target.scheme, target.host) == ("http", "test"), location
                assert "\n" not in location and "\r" not in location and not location.startswith("//")
                for following in re.findall(r'name="next" value="([^"]*)"', answer.text):
                    assert following.startswith("/") and not following.startswith(("//", "/\\"))


NO_ASSETS = ["..%2fsite.py", "../site.py", "..%5csite.py", "%2e%2e/site.py", "....//site.py", "%00", "console.css%00.js"]


def test_nothing_but_assets_is_given_away(visitor, subtests):
    for path in NO_ASSETS:
        for before in ("/static/", "/static//", "/static/./", "/static/x/"):
            with subtests.test(path=path, before=before):
                answer = visitor.get(before + path)
                assert answer.status_code == 404
                assert "import" not in answer.text


HOSTILE = [
    b"\x00",
    b"%00",
    b"\xc0\xaf",
    b"%c0%af",
    b"\xff\xfe",
    b"%ed%a0%80",
    b"%",
    b"%zz",
    b"\xf0\x9f",
    b"A" * 1_000_000,
    b"%f0%28%8c%28" * 1000,
]


def test_no_bytes_make_a_page_fail(caplog, subtests):
    for bytes_ in HOSTILE:
        with subtests.test(bytes_=bytes_):
            caplog.clear()
            site = Site(furnished().app)
            session = Visitor(site).cookies["eyas-session-80"]
            signed_in = f"eyas-session-80={session}".encode()
            for path in shown(site):
                at = filled(path).encode()
                for raw, query in ((at, b"cursor=" + bytes_), (at + b"/" + bytes_[:2000], b""), (b"/" + bytes_[:2000], bytes_)):
                    _plainly(_raw(site, "GET", raw, query, cookie=signed_in))
            for path in taken(site):
                for body in (bytes_, b"word=" + bytes_, b"word=" + word(session).encode() + b"&reason=" + bytes_ * 2):
                    if path != "/logout":
                        _plainly(_raw(site, "POST", filled(path).encode(), b"", body, signed_in))
            for cookie in (
                b"eyas-session-80=" + bytes_[:4000],
                b"eyas-said=" + bytes_[:4000],
                b"eyas-theme=" + bytes_[:4000],
                bytes_[:4000],
            ):
                _plainly(_raw(site, "GET", b"/", b"", cookie=cookie))
            assert "page: failed" not in caplog.text


def _plainly(answer: tuple[int, bytes]) -> None:
    assert answer[0] < 500, answer
    assert b"Traceback" not in answer[1]


def _raw(site: Site, method: str, path: bytes, query: bytes, body: bytes = b"", cookie: bytes = b"") -> tuple[int, bytes]:
    """Past what a client would make of it: as a server hands it over."""
    said: dict[str, Any] = {"body": b""}
    scope = {
        "type": "http",
        "method": method,
        "path": unquote_to_bytes(path).decode("utf-8", "replace"),
        "raw_path": path,
        "query_string": query,
        "scheme": "http",
        "server": ("test", 80),
        "client": ("127.0.0.1", 1),
        "http_version": "1.1",
        "root_path": "",
        "headers": [
            (b"host", b"test"),
            (b"cookie", cookie),
            (b"content-type", FORM["Content-Type"].encode()),
            (b"sec-fetch-site", b"same-origin"),
        ],
    }

    sent = False

    async def receive() -> dict[str, Any]:
        """Once; then it stays, as a visitor does."""
        nonlocal sent
        if sent:
            await asyncio.Event().wait()
        sent = True
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            said["status"] = message["status"]
        else:
            said["body"] += message.get("body", b"")

    asyncio.run(site(scope, receive, send))  # type: ignore[arg-type]
    return said["status"], said["body"]


def test_every_template_escapes_and_holds_nothing_inline():
    environment = render._environment()
    assert environment.autoescape is True
    assert len(TEMPLATES) >= 9
    for path in TEMPLATES:
        text = path.read_text(encoding="utf-8")
        assert _faults(text) == [], path.name


UNSAFE_TEMPLATES = [
    "{{ x|safe }}",
    "{% autoescape false %}{{ x }}{% endautoescape %}",
    '<p style="x">',
    "<p onclick=x>",
    "<script>x</script>",
    "<a href='{{ x }}:'>",
    "<p class={{ x }}>",
    "<style>x</style>",
    "<p id='{{ x }}'>",
    "{{ x|forceescape|safe }}",
    '<iframe src="/">',
    "<base href='/'>",
]


def test_what_a_template_must_not_hold_is_found(subtests):
    """The test of the test."""
    for text in UNSAFE_TEMPLATES:
        with subtests.test(text=text):
            assert _faults(text) != []


def _faults(text: str) -> list[str]:
    tree = render._environment().parse(text)
    found = [f"filter {one.name}" for one in tree.find_all(nodes.Filter) if one.name in ("safe", "forceescape", "xmlattr")]
    found += ["autoescape is changed" for _ in tree.find_all((nodes.ScopedEvalContextModifier, nodes.EvalContextModifier, nodes.MarkSafe))]
    bare = re.sub(r"\{#.*?#\}", "", text, flags=re.DOTALL)
    plain = re.sub(r"\{%.*?%\}", "", bare, flags=re.DOTALL)
    for what, pattern in {
        "inline style": r"<[^>]*\sstyle\s*=",
        "inline script": r"<[^>]*\son\w+\s*=",
        "script without src": r"<script(?![^>]*\ssrc=)",
        "style element": r"<style",
        "frame or base": r"<(iframe|object|embed|base)\b",
        "attribute without double quotes": r"\s[\w-]+\s*=\s*('[^']*)?\{\{",
    }.items():
        found += [what for _ in re.finditer(pattern, plain, flags=re.IGNORECASE)]
    return found


def test_no_source_of_the_console_calls_data_markup():
    """Markup is made of constants alone; what stands in its gaps is escaped by it."""
    sources = [*SOURCES, *SOURCES[0].parent.parent.glob("*.py")]
    for path in sources:
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "Markup":
                assert all(isinstance(one, ast.Constant) for one in call.args), f"{path.name}:{call.lineno}"
