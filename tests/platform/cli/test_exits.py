"""Exit codes that need a process: an interrupt, a reader that closed its pipe, a declined question on a terminal."""

from __future__ import annotations

import subprocess

import pytest

from services.cli.exit_codes import Exit
from tests.servers.cli_process import COMMAND, environment, loopback, terminal

RUN = {"id": "r1", "recommender": "m", "state": "train", "reason": ""}


@pytest.fixture
def served():
    with loopback() as found:
        yield found


def test_a_declined_question_is_a_no():
    with terminal("http://127.0.0.1:1", "delete", "m") as seen:
        seen.until("[y/N]")
        seen.types("n\n")
        assert seen.ends() == Exit.NO
    assert seen.lines[-1].strip() == "eyas: nothing was done"


def test_an_interrupt_is_130_without_a_message(served):
    served.says("GET /v1/runs/r1", RUN)
    log = {"text": "", "next": 11, "stage": "train", "attempt": "a"}
    served.says("GET /v1/runs/r1/logs", log, log | {"text": "first line\n"}, log)
    with terminal(served.url, "logs", "r1", "--follow") as seen:
        seen.until("first line").interrupt()
        assert seen.ends() == Exit.INTERRUPTED
    assert seen.lines == ["first line", "^C"]


def test_a_closed_pipe_is_141_without_a_message(served):
    served.says("GET /v1/runs/r1", RUN)
    served.says("GET /v1/runs/r1/logs", {"text": "x" * 200_000, "next": 1, "stage": "train", "attempt": "a"})
    process = subprocess.Popen(
        [*COMMAND, "logs", "r1", "--follow"], env=environment(served.url), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    process.stdout.read(1)
    process.stdout.close()
    said = process.stderr.read()
    process.stderr.close()
    assert (process.wait(60), said) == (Exit.UNREAD, b"")
