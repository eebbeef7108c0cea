"""When a server that lives and does not answer is ended."""

from __future__ import annotations

import pytest

from services.triton.watchdog import HANGS, UNANSWERED, Watchdog


class Server:
    def __init__(self) -> None:
        self.answers = False
        self.now = 100.0
        self.ends = 0
        self.can_be_ended = True
        self.watchdog = Watchdog(lambda: self.answers, self.end, clock=lambda: self.now)

    def end(self) -> bool:
        self.ends += 1
        return self.can_be_ended

    def ask(self, times: int, every: float) -> None:
        for _ in range(times):
            self.watchdog.ask()
            self.now += every


@pytest.mark.requirement("C-05")
def test_a_silent_server_is_ended_after_the_time_and_then_given_as_long_again() -> None:
    server = Server()
    server.ask(10, HANGS / 10)
    assert server.ends == 0
    server.ask(1, 0)
    assert (server.ends, server.watchdog.ended) == (1, True)
    server.ask(10, HANGS / 10)
    assert server.ends == 1


def test_an_answer_in_between_begins_anew() -> None:
    server = Server()
    server.ask(9, HANGS / 10)
    server.answers = True
    server.ask(1, HANGS / 10)
    server.answers = False
    server.ask(10, HANGS / 10)
    assert server.ends == 0


def test_a_pause_of_this_process_is_no_silence_of_the_server() -> None:
    server = Server()
    server.ask(UNANSWERED - 1, 10 * HANGS)
    assert server.ends == 0


def test_a_server_of_somebody_else_is_not_said_to_be_ended() -> None:
    server = Server()
    server.can_be_ended = False
    server.ask(UNANSWERED, HANGS)
    assert (server.ends, server.watchdog.ended) == (1, False)
