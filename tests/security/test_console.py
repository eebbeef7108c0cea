"""Nothing that anybody wrote is executed by anybody's browser: each text of each answer of the API is markup, each page is looked at."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote, urlencode

import pytest

from services.console import Site
from services.console.site import HEADERS
from tests.security.hostile import ADDRESS, CALCULATED, MARKUP, HostileApi, Places, listening
from tests.security.surface import WORDLESS, fields, filled, queries, shown, taken
from tests.servers.browser import Watched, browser, chromium
from tests.servers.platform_process import until
from tests.support.api_world import World

pytestmark = pytest.mark.requirement("C-01")

_WATCH = "window.executed = []; window.pwned = (n) => window.executed.push(n);"
_BAD = """() => {
  const found = [...window.executed];
  for (const one of document.querySelectorAll("*")) {
    for (const name of one.getAttributeNames())
      if (name.startsWith("on") || name === "style" || name === "srcdoc") found.push(`${one.tagName} ${name}`);
    for (const name of ["href", "src", "action", "formaction", "data-log"]) {
      const said = one.getAttribute(name);
      if (said !== null && new URL(said, location.href).origin !== location.origin) found.push(`${one.tagName} ${name}=${said}`);
    }
    if (["IFRAME", "OBJECT", "EMBED", "BASE"].includes(one.tagName)) found.push(one.tagName);
    if (one.tagName === "SCRIPT" && !(one.getAttribute("src") || "").startsWith("/static/")) found.push("SCRIPT");
    if (one.tagName === "IMG" && !one.getAttribute("src").startsWith("/static/")) found.push("IMG");
  }
  return found;
}"""
PASSES = {
    "markup": Places(),
    "markup where states stand": Places(kept=frozenset()),
    "addresses": Places(ADDRESS),
}


class Looked(Watched):
    """A visitor who notices what is executed, injected, or stopped by the policy alone."""

    def __init__(self, context: Any, url: str) -> None:
        context.add_init_script(_WATCH)
        super().__init__(context, url)
        self.expected.append("Failed to load resource")  # of a refused page: it says that it was refused
        self.seen: set[str] = set()
        self.looks = 0

    def visit(self, path: str, places: Places) -> None:
        """A page; what is none (a log that is followed) is never taken for one by a browser."""
        answer = self.go(path)
        if answer is not None and not answer.headers["content-type"].startswith("text/html"):
            assert answer.headers["x-content-type-options"] == "nosniff", path
            return
        assert answer is None or answer.status < 500, path
        self.check_page(places, path)

    def check_page(self, places: Places, what: str) -> None:
        content = self.page.content()
        self.looks += 1
        self.seen |= places.shown(content)
        assert self.page.evaluate(_BAD) == [], what
        assert CALCULATED not in content, what
        self.check()


@pytest.fixture(scope="module")
def api() -> HostileApi:
    chromium()
    return HostileApi(World().app.openapi())


@pytest.fixture(scope="module")
def site(api: HostileApi) -> Site:
    return Site(api.app)


@pytest.fixture(scope="module")
def chrome() -> Iterator[Any]:
    with browser() as running:
        yield running


@pytest.fixture(scope="module")
def address(site: Site) -> Iterator[str]:
    with listening(site) as url:
        yield url


@pytest.fixture
def someone(chrome: Any, address: str, api: HostileApi) -> Iterator[Looked]:
    api.places, api.status = Places(), 0
    visitor = Looked(chrome.new_context(), address)
    visitor.sign_in("a-token")
    yield visitor
    visitor.context.close()


@pytest.mark.parametrize("what", PASSES)
def test_what_the_platform_tells_is_shown_as_text_by_every_page(someone, api, site, what):
    api.places = PASSES[what]
    for path in (*shown(site), "/runs/compare?run=r1&run=r2"):
        if path.startswith("/static/"):
            continue
        someone.visit(filled(path), api.places)
    sys.stdout.write(f"{what}: {someone.looks} pages, {len(api.places)} places in what they asked for, {len(someone.seen)} of them shown\n")
    if what == "markup":
        assert {"whoami", "get_overview.items[].name"} <= someone.seen
        assert {"list_tokens.items[].name", "list_audit.items[].actor", "list_audit.items[].detail"} <= someone.seen
        assert {"get_serving.routes.key", "get_serving.gateways[].name", "get_serving.server.replicas[].fault"} <= someone.seen


@pytest.mark.parametrize("status", [403, 404, 409, 422, 503])
def test_what_the_platform_refuses_with_is_shown_as_text(someone, api, site, status):
    api.status = status
    for path in ("/", "/serving", "/settings", "/settings/audit"):
        someone.go(path)
        someone.check_page(api.places, path)
    assert {"problem"} <= someone.seen


@pytest.mark.parametrize("text", [MARKUP.format(n=1), ADDRESS.format(n=1), "//evil.example/", "\\\\evil.example\\"])
def test_what_stands_in_an_address_is_shown_as_text(someone, api, site, text):
    api.places = Places()
    every = urlencode(dict.fromkeys(sorted(queries()), text))
    for path in shown(site):
        if path.startswith("/static/"):
            continue
        for at in {f"{filled(path)}?{every}", filled(path, text)}:
            someone.visit(at, api.places)
    for at in (f"/login?next={quote(text, safe='')}", f"/{quote(text, safe='')}"):
        someone.go(at)
        someone.check_page(api.places, at)


def test_what_stands_in_cookies_is_shown_as_text(someone, api):
    text = quote(MARKUP.format(n=1), safe="")
    someone.context.add_cookies([{"name": name, "value": text, "url": someone.url} for name in ("eyas-said", "eyas-theme")])
    someone.go("/settings")
    assert someone.page.get_by_role("status").filter(has_text="pwned(1)").count() == 1
    someone.check_page(api.places, "cookies")


@pytest.mark.parametrize("status", [0, 422])
def test_what_a_form_brings_and_is_answered_is_shown_as_text(someone, api, site, status):
    """By forms of the console's own, which a page of it sends."""
    for path in taken(site):
        if path == "/logout":
            continue
        api.status = 0
        someone.go("/settings")
        api.status = status
        given = dict.fromkeys(sorted(fields() - {"word", "once", "next"}), MARKUP.format(n=2)) | {"next": ADDRESS.format(n=2), "once": "1"}
        with someone.page.expect_navigation():
            someone.page.evaluate(_SEND, [filled(path), given])
        someone.check_page(api.places, f"POST {path}")


_SEND = """([action, fields]) => {
  const form = document.createElement("form");
  form.method = "post"; form.action = action;
  const all = { ...fields, word: document.querySelector("[name=word]").value };
  for (const [name, value] of Object.entries(all)) {
    const field = document.createElement("input");
    field.type = "hidden"; field.name = name; field.value = value; form.append(field);
  }
  document.body.append(form); form.submit();
}"""


def test_what_an_open_page_learns_later_is_shown_as_text(someone, api):
    someone.go("/")
    api.places.turn += 1
    until("the page shows what is new", lambda: f"+{api.places.turn})" in someone.page.locator("main").inner_text())
    someone.check_page(api.places, "what came later")


def test_a_browser_that_is_given_markup_would_be_noticed(chrome):
    """The test of the test: the same texts unescaped are executed; under the policy they are stopped, and that is noticed too."""

    def page(headers: dict[str, str]) -> Any:
        async def app(scope: Any, receive: Any, send: Any) -> None:
            raw = [(b"content-type", b"text/html"), *((name.lower().encode(), value.encode()) for name, value in headers.items())]
            await send({"type": "http.response.start", "status": 200, "headers": raw})
            await send({"type": "http.response.body", "body": f"<title>x</title><p>{MARKUP.format(n=1)}".encode()})

        return app

    for headers in ({}, HEADERS):
        with listening(page(headers)) as url:
            visitor = Looked(chrome.new_context(), url)
            visitor.go("/")
            if headers:
                until("the policy stops it", lambda: any("Content Security Policy" in one for one in visitor.wrong))  # noqa: B023
            else:
                until("it is executed", lambda: visitor.page.evaluate("window.executed.length") > 0)  # noqa: B023
            assert visitor.page.evaluate(_BAD) != []
            visitor.context.close()


def test_forms_without_a_word_are_known():
    assert WORDLESS == ("/login", "/theme")
