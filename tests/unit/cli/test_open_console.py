"""`eyas open`: where in the console something is."""

from __future__ import annotations

import json

import pytest

from services.cli.exit_codes import Exit

KNOWN = {"movies": "recommenders", "r01a": "runs", "r01a-rollout": "rollouts"}


@pytest.fixture
def known(platform):
    for place in KNOWN.values():
        for what, home in KNOWN.items():
            platform.refuses(f"GET /v1/{place}/{what}", 404, "not-found", f"no such thing is called '{what}'")
            if home == place:
                platform.says(f"GET /v1/{place}/{what}", {})
    return platform


@pytest.mark.parametrize(("what", "place"), KNOWN.items())
def test_the_address_is_that_of_what_the_platform_knows_it_as(known, eyas, what, place):
    assert eyas("open", what).stdout == f"http://127.0.0.1:8080/{place}/{what}\n"
    assert json.loads(eyas("open", what, "--json").stdout) == {"url": f"http://127.0.0.1:8080/{place}/{what}"}


def test_without_a_word_it_is_the_first_page(platform, eyas):
    assert eyas("--url", "http://there:1/", "open").stdout == "http://there:1/\n"
    assert platform.asked == []


def test_what_nothing_is_called_is_refused(platform, eyas):
    for place in ("recommenders", "runs", "rollouts"):
        platform.refuses(f"GET /v1/{place}/x", 404, "not-found", "no")
    found = eyas("open", "x")
    assert (found.exit_code, found.stderr.count("\n")) == (Exit.WRONG, 1)
    assert "no recommender, run or rollout 'x': list them with" in found.stderr


def test_a_browser_is_opened_when_asked_and_said_where_there_is_none(known, eyas, monkeypatch):
    opened = []
    monkeypatch.setattr("webbrowser.open", lambda url: not opened.append(url))
    assert eyas("open", "movies", "--browser").exit_code == Exit.DONE
    assert opened == ["http://127.0.0.1:8080/recommenders/movies"]
    monkeypatch.setattr("webbrowser.open", lambda url: False)
    assert eyas("open", "movies", "--browser").exit_code == Exit.NO
