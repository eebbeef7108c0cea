"""Colours, widths and the screen of `--watch`. On a real pseudo terminal: tests/platform/cli/test_terminal.py."""

from __future__ import annotations

import os
import signal

import pytest

from services.cli import terminal
from services.cli.watching import ScreenOutput

VARIABLES = ("NO_COLOR", "FORCE_COLOR", "CLICOLOR", "CLICOLOR_FORCE", "TERM")
ON_A_TERMINAL = (
    ({}, True),
    ({"NO_COLOR": "1"}, False),
    ({"NO_COLOR": "1", "FORCE_COLOR": "1"}, False),
    ({"NO_COLOR": ""}, True),
    ({"TERM": "dumb"}, False),
    ({"TERM": ""}, False),
    ({"CLICOLOR": "0"}, False),
    ({"TERM": "dumb", "FORCE_COLOR": "1"}, True),
)
IN_A_PIPE = (({}, False), ({"FORCE_COLOR": "1"}, True), ({"CLICOLOR_FORCE": "1"}, True), ({"FORCE_COLOR": "0"}, False))


@pytest.fixture
def seen(monkeypatch):
    """Says whether somebody looks at stdout, and sets the variables of its terminal."""

    def be(watched, variables):
        for name in VARIABLES:
            monkeypatch.delenv(name, raising=False)
        for name, value in ({"TERM": "xterm"} | variables).items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(terminal, "watched", lambda: watched)

    return be


def test_colours_follow_the_variables(seen, subtests):
    for watched, rows in ((True, ON_A_TERMINAL), (False, IN_A_PIPE)):
        for variables, coloured in rows:
            with subtests.test(watched=watched, variables=variables):
                seen(watched, variables)
                assert terminal.painted("failed", "red") == ("\x1b[31mfailed\x1b[0m" if coloured else "failed")


def test_an_empty_text_is_not_coloured(seen):
    seen(True, {})
    assert terminal.painted("", "red") == ""


def test_a_pipe_has_no_width(seen, monkeypatch):
    monkeypatch.setattr("shutil.get_terminal_size", lambda fallback: os.terminal_size((40, 10)))
    seen(False, {})
    assert terminal.width() is None
    seen(True, {})
    assert (terminal.width(), terminal.height()) == (40, 10)


def test_a_coloured_word_in_a_pipe(eyas, platform, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    row = {"id": "r1", "recommender": "m", "state": "failed", "mode": "full", "created_at": "2026-01-01T00:00:00Z", "version": None}
    platform.says("GET /v1/recommenders/m/runs", {"items": [row | {"cause": "", "reason": "no data"}], "next": None})
    assert "\x1b[31mfailed\x1b[0m" in eyas("runs", "m").stdout


@pytest.fixture
def screen(seen, monkeypatch, capsys):
    """What a screen of 6 lines shows of a list of lines, and what is left after it."""
    before = signal.getsignal(signal.SIGTERM)
    seen(True, {"NO_COLOR": "1"})
    monkeypatch.setattr(terminal, "height", lambda: 6)
    monkeypatch.setattr(terminal, "width", lambda: 80)

    def show(*pictures, note=""):
        from services.cli.output import say

        with ScreenOutput(lambda lines: [say(line) for line in lines]) as made:
            for picture in pictures:
                made.show(picture)
            if note:
                made.note(note)
        shown, _, after = capsys.readouterr().out.partition("\x1b[?1049l")
        return shown, after

    yield show
    signal.signal(signal.SIGTERM, before)


def test_a_screen_is_drawn_again_and_its_last_picture_stays(screen):
    shown, after = screen(["loading"], ["promoted"])
    assert shown.startswith("\x1b[?1049h")
    assert shown.index("loading") < shown.index("promoted") < shown.index("\x1b[?25h")
    assert shown.count("press Ctrl-C to end") == 2
    assert after == "promoted\n"


def test_a_picture_that_is_too_high_says_how_much_is_below(screen):
    shown, after = screen([f"line {number}" for number in range(10)])
    assert "line 2" in shown and "line 3" not in shown
    assert "7 more lines: use a taller terminal" in shown
    assert len(after.splitlines()) == 10


def test_a_platform_that_is_away_is_said_below_the_last_picture(screen):
    shown, after = screen(["canary"], note="nothing answers")
    assert shown.rindex("canary") < shown.index("nothing answers; trying again")
    assert after == "canary\n"
