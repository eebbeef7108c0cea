"""The console over the API over ports in memory."""

from __future__ import annotations

import re
from urllib.parse import urlencode

import pytest

from services.console import Site
from services.console.session import word
from tests.support.api_world import TOKEN, Client, World

HERE = {"Sec-Fetch-Site": "same-origin", "Content-Type": "application/x-www-form-urlencoded"}


class Visitor:
    """A browser without one: it keeps the console's cookie, and sends forms as browsers do."""

    def __init__(self, site, token=TOKEN, session=None):
        """`session` is for a session that has ended."""
        self._client = Client(site)
        self.cookies = {}
        if token is not None and session is None:
            session = self._client.post("/v1/sessions", json={}, headers={"Authorization": f"Bearer {token}"}).json()["session"]
        if session is not None:
            self.cookies["eyas-session-80"] = session

    @property
    def word(self):
        """The word of the visitor's forms."""
        return word(self.cookies["eyas-session-80"])

    def get(self, path, headers=None):
        return self._client.get(path, headers=self._headers(headers or {}))

    def send(self, path, headers=HERE, **fields):
        return self._client.post(path, headers=self._headers(headers), content=urlencode(fields))

    def press(self, path, **fields):
        """With the word that forms carry."""
        word = re.search(r'name="word" value="([0-9a-f]+)"', self.get("/").text)
        return self.send(path, word=word.group(1), **fields)

    def _headers(self, more):
        return {"Cookie": "; ".join(f"{name}={value}" for name, value in self.cookies.items())} | more


@pytest.fixture
def world():
    return World()


@pytest.fixture
def site(world):
    return Site(world.app)


@pytest.fixture
def visitor(site):
    return Visitor(site)


@pytest.fixture
def stranger(site):
    return Visitor(site, token=None)
