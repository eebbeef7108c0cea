"""A real Chromium, headless, that tells what no page may do: errors on its console, and requests to anybody but the platform."""

from __future__ import annotations

import importlib.util
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

_QUIET = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)

_MISFITS = (Path(__file__).parent / "misfits.js").read_text()


def chromium() -> str:
    """Its path; without it, or without what drives it, nothing of this is tried."""
    found = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
    missing = []
    if found is None:
        missing.append("no Chromium is installed (apt-get install --no-install-recommends chromium; or say CHROMIUM=/path/to/it)")
    if importlib.util.find_spec("playwright") is None or importlib.util.find_spec("axe_playwright_python") is None:
        missing.append("Playwright isn't in the environment (make setup-browser)")
    if missing:
        said = f"pages were not looked at by a browser: {'; '.join(missing)}"
        if os.environ.get("CI") == "true":
            pytest.fail(said)
        pytest.skip(said)
    assert found is not None
    return found


class Watched:
    """One visitor: a page, and what went wrong in it. `context` has the cookies."""

    def __init__(self, context: Any, url: str) -> None:
        self.url = url
        self.context = context
        self.page = context.new_page()
        self.wrong: list[str] = []
        self.expected: list[str] = []
        """Of what goes wrong: what a test brings about itself, by a part of its text."""
        self.page.on("console", lambda said: self.wrong.append(f"console: {said.text}") if said.type in ("error", "warning") else None)
        self.page.on("pageerror", lambda error: self.wrong.append(f"script: {error}"))
        self.page.on("dialog", lambda dialog: (self.wrong.append(f"dialog: {dialog.message}"), dialog.dismiss()))
        self.page.on("request", self._asked)

    def _asked(self, request: Any) -> None:
        if urlsplit(request.url).netloc != urlsplit(self.url).netloc and not request.url.startswith("data:"):
            self.wrong.append(f"another host was asked: {request.url}")

    def sign_in(self, token: str) -> None:
        self.page.goto(f"{self.url}/login")
        self.page.get_by_label("Token").fill(token)
        self.page.get_by_role("main").get_by_role("button", name="Sign in").click()
        self.page.wait_for_url(f"{self.url}/")

    def go(self, path: str) -> Any:
        """The answer to the request for it."""
        return self.page.goto(f"{self.url}{path}")

    def hurdles(self) -> list[str]:
        """What axe finds that keeps people out: serious and critical, each with the element."""
        from axe_playwright_python.sync_playwright import Axe

        found = Axe().run(self.page).response["violations"]
        return [f"{one['id']}: {one['nodes'][0]['html'][:200]}" for one in found if one["impact"] in ("serious", "critical")]

    def misfits(self) -> list[str]:
        """What of the page, with all its details open, is outside the window, cut off, not shown, or too small to read."""
        self.page.evaluate("for (const details of document.querySelectorAll('details')) details.open = true")
        misfits: list[str] = self.page.evaluate(_MISFITS)
        return misfits

    def check(self) -> None:
        left = [one for one in self.wrong if not any(part in one for part in self.expected)]
        assert not left, "\n".join(left)


@contextmanager
def browser() -> Iterator[Any]:
    path = chromium()
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        running = driver.chromium.launch(executable_path=path, args=list(_QUIET))
        try:
            yield running
        finally:
            running.close()
