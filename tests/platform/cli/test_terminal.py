"""`eyas` on a pseudo terminal: widths, colours, the screen of `--watch`, and interrupts."""

from __future__ import annotations

import json

import pytest

from services.cli.exit_codes import Exit
from services.cli.sanitise import width
from tests.servers.cli_process import loopback, piped, terminal

pytestmark = pytest.mark.requirement("C-09")

RUN = {
    "id": "r01m7z2yyn7qyezgy",
    "recommender": "m",
    "state": "failed",
    "mode": "full",
    "created_at": "2026-01-01T00:00:00Z",
    "version": None,
    "cause": "the spec changed",
    "reason": "etl: ratings.parquet: column 'userId' has 3 nulls: what to do about them stands here at some length",
}
ROLLOUT = {"id": "r1-rollout", "recommender": "m", "version": 2, "state": "canary", "reason": "no evidence of harm", "reports": []}


@pytest.fixture
def served():
    with loopback() as told:
        yield told


@pytest.fixture
def runs(served):
    served.says("GET /v1/recommenders/m/runs", {"items": [RUN], "next": None})
    return served


@pytest.mark.parametrize("columns", [40, 80, 200])
def test_a_table_fits_the_terminal_and_ids_stay_whole(runs, columns):
    with terminal(runs.url, "runs", "m", columns=columns) as seen:
        assert seen.ends() == Exit.DONE
    assert max(map(width, seen.lines)) <= columns
    assert any(line.startswith("r01m7z2yyn7qyezgy  failed") for line in seen.lines)
    assert (columns < 200) == any(line.startswith("without CAUSE, MODE") for line in seen.lines)
    known = {*" ".join(map(str, RUN.values())).split(), "-", "2026-01-01", "00:00:00"}
    assert {word for line in seen.lines[1:] if not line.startswith(("without", "REASON:")) for word in line.split()} - known <= {
        "--json",
        "shows",
        "them",
        "wider",
        "terminal",
        "or",
        "a",
    }


def test_a_pipe_gets_all_of_it_uncoloured_on_one_line(runs):
    found = piped(runs.url, "runs", "m", COLUMNS="40")
    assert "\x1b" not in found.stdout
    assert RUN["reason"] in found.stdout.splitlines()[1]
    assert len(found.stdout.splitlines()) == 2


@pytest.mark.parametrize(
    ("more", "coloured"),
    [
        ({}, True),
        ({"NO_COLOR": "1"}, False),
        ({"NO_COLOR": "1", "FORCE_COLOR": "1"}, False),
        ({"NO_COLOR": ""}, True),
        ({"TERM": "dumb"}, False),
        ({"CLICOLOR": "0"}, False),
        ({"TERM": "dumb", "FORCE_COLOR": "1"}, True),
    ],
    ids=str,
)
def test_a_terminal_is_coloured_unless_somebody_says_no(runs, more, coloured):
    with terminal(runs.url, "runs", "m", **more) as seen:
        assert seen.ends() == Exit.DONE
    assert ("\x1b[31mfailed\x1b[0m" in seen.text) is coloured
    assert ("\x1b" in seen.text) is coloured


@pytest.mark.parametrize("more", [{"FORCE_COLOR": "1"}, {"CLICOLOR_FORCE": "1"}], ids=str)
def test_a_pipe_is_coloured_where_that_is_forced(runs, more):
    assert "\x1b[31mfailed\x1b[0m" in piped(runs.url, "runs", "m", **more).stdout


def test_what_others_wrote_does_not_reach_the_terminal_as_an_escape(served):
    served.says("GET /v1/recommenders/m/runs", {"items": [{**RUN, "reason": "\x1b[2J\x1b]0;mine\x07gone\x9b31m"}], "next": None})
    with terminal(served.url, "runs", "m", columns=200, NO_COLOR="1") as seen:
        assert seen.ends() == Exit.DONE
    assert "\x1b" not in seen.text
    assert "gone\ufffd31m" in seen.text


def test_a_watched_rollout_is_redrawn_until_it_ends_and_the_last_picture_stays(served):
    states = [{**ROLLOUT, "state": one} for one in ("loading", "canary", "promoted")]
    served.says("GET /v1/recommenders/m/rollouts", {"items": states[:1], "next": None})
    served.says("GET /v1/rollouts/r1-rollout", *states[1:])
    with terminal(served.url, "rollout", "status", "m", "--watch") as seen:
        assert seen.ends() == Exit.DONE
    before, _, after = seen.text.partition("\x1b[?1049l")
    assert seen.text.startswith("\x1b[?1049h")
    assert [state in before for state in ("loading", "canary", "promoted")] == [True] * 3
    assert "promoted" in after
    assert "\x1b[?25h" in before.rpartition("\x1b[?25l")[2]


def test_ctrl_c_ends_a_watched_list_and_gives_the_screen_back(runs):
    with terminal(runs.url, "runs", "m", "--watch") as seen:
        seen.until("press Ctrl-C to end").interrupt()
        assert seen.ends() == Exit.INTERRUPTED
    assert seen.text.index("\x1b[?1049l") < seen.text.rindex("r01m7z2yyn7qyezgy")
    assert "Traceback" not in seen.text
    assert "Aborted" not in seen.text


def test_a_watch_that_is_told_to_end_gives_the_screen_back(runs):
    with terminal(runs.url, "runs", "m", "--watch") as seen:
        seen.until("press Ctrl-C to end").process.terminate()
        assert seen.ends() == Exit.INTERRUPTED
    assert "\x1b[?25h\x1b[?1049l" in seen.text


def test_a_picture_follows_the_size_of_its_terminal(runs):
    with terminal(runs.url, "runs", "m", "--watch", columns=200) as seen:
        seen.until("CAUSE").resizes(60)
        seen.until("without CAUSE").interrupt()
        assert seen.ends() == Exit.INTERRUPTED


def test_a_log_moves_no_cursor_and_json_has_it_as_it_was_written(served):
    hostile = "\x1b[31mred\x1b[0m \x1b]0;mine\x07end\n"
    served.says("GET /v1/runs/r1", {"state": "registered"})
    served.says(
        "GET /v1/runs/r1/logs",
        *({"text": text, "next": 9, "stage": "etl", "attempt": "a"} for text in ("", hostile, "", "", hostile, "")),
    )
    with terminal(served.url, "logs", "r1") as seen:
        assert seen.ends() == Exit.DONE
    assert seen.text == "red end\r\n"
    served.says("GET /v1/runs/r1/logs", *({"text": text, "next": 9, "stage": "etl", "attempt": "a"} for text in ("", hostile, "")))
    assert json.loads(piped(served.url, "logs", "r1", "--json").stdout)["text"] == hostile


def test_a_picture_that_is_too_high_says_how_much_is_below(served):
    items = [{**RUN, "id": f"r{number}"} for number in range(50)]
    served.says("GET /v1/recommenders/m/runs", {"items": items, "next": None})
    with terminal(served.url, "runs", "m", "--watch", columns=200, rows=10) as seen:
        seen.until("44 more lines").interrupt()
        assert seen.ends() == Exit.INTERRUPTED


def test_a_dumb_terminal_is_not_drawn_on_again(served):
    served.says("GET /v1/recommenders/m/rollouts", {"items": [ROLLOUT], "next": None})
    served.says("GET /v1/rollouts/r1-rollout", {**ROLLOUT, "state": "rolled_back", "reason": "harm"})
    with terminal(served.url, "rollout", "status", "m", "--watch", TERM="dumb") as seen:
        assert seen.ends() == Exit.NO
    assert "\x1b" not in seen.text
    assert [line for line in seen.lines if line.startswith("r1-rollout")] == [
        "r1-rollout: version 2 is canary  no evidence of harm",
        "r1-rollout: version 2 is rolled back  harm",
    ]
