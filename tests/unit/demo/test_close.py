"""The last lines of the demo: how to look at its platform in a browser."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from demo.__main__ import FOLDER, _close
from demo.counting import Tally
from demo.platform import Platform
from demo.story import StoryResults
from demo.summary import Act

pytestmark = pytest.mark.requirement("C-09")


def printed(results):
    out = io.StringIO()
    _close(Console(file=out, width=140), results, Tally(), Platform(FOLDER), "")
    return out.getvalue()


def test_it_says_how_its_story_can_be_read_in_a_browser():
    text = printed(StoryResults(acts=[Act("first version", "promoted", 1, "r1")], planned=1))
    assert "\ndemo passed: 1 of 1 acts\n" in text
    assert "make up HOME_OF=var/demo " in text
    assert "http://127.0.0.1:8080/recommenders/movies" in text
    assert "var/demo/home/token" in text


def test_without_a_story_there_is_none_to_read():
    assert "make up" not in printed(StoryResults())
