"""The world outside the control planes, in a process of its own that outlives them all: people, time, and what a subject adds.

Time moves when every control plane that lives waits for it, so nothing here takes real time; those that wait for each other
(`meet`) go on together, and one that sleeps wakes when the others have ended.
"""

from __future__ import annotations

import os
import selectors
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from tests.crash.matrix.wire import Clock, Wire

SECOND = timedelta(seconds=1)
AGES = 200
"""Seconds of the world's time in which every life has ended."""
_PATIENCE = 60.0
"""Real seconds of silence after which a process counts as stuck."""


@dataclass
class Hand:
    """A control plane's process, as the world sees it."""

    pid: int
    wire: Wire
    waits: str = ""
    status: int | None = None
    """How it ended: an exit code, or minus a signal."""


class Outside:
    """Subjects say what goes on in it (`work`), what else happens (`happen`), and what a control plane may ask (`called`)."""

    def __init__(self, script: Sequence[tuple[str, str]], clock: Clock, status: Callable[[], Any], ask: Callable[[str], object]) -> None:
        """`script`: what happens as soon as the hero is somewhere, one after the other; `ask` asks it for something, in a person's name."""
        self.script = list(script)
        self.clock = clock
        self.ask = ask
        self._status = status
        self.ages = 0
        self.moves: list[dict[str, Any]] = []
        self.said: list[str] = []
        self.stuck = ""

    def begin(self, now: datetime) -> None:
        self.clock.set(now)
        self.play()

    def work(self) -> None:
        """What is due outside happens."""

    def is_at(self, status: Any, where: str) -> bool:
        return bool(status.state == where)

    def happen(self, what: str) -> None:
        self.ask(what)

    def called(self, call: str, words: dict[str, Any]) -> dict[str, Any] | None:
        """The answer; None where none is waited for."""
        raise NotImplementedError(call)

    def play(self) -> None:
        self.work()
        if self.script and self.is_at(self._status(), self.script[0][0]):
            self.happen(self.script.pop(0)[1])

    def pass_by(self, seconds: int) -> None:
        for _ in range(seconds):
            self.clock.set(self.clock.now() + SECOND)
            self.ages += 1
            self.play()

    # Control planes

    def serve(self, hands: Sequence[Hand]) -> None:
        """Until all of them have ended."""
        alive = list(hands)
        with selectors.DefaultSelector() as selector:
            for hand in alive:
                selector.register(hand.wire.socket, selectors.EVENT_READ, hand)
            last = time.monotonic()
            while alive:
                for key, _ in selector.select(timeout=1.0):
                    last = time.monotonic()
                    hand = key.data
                    if not self._hear(hand):
                        selector.unregister(hand.wire.socket)
                        alive.remove(hand)
                if alive and (self.ages > AGES or time.monotonic() - last > _PATIENCE):
                    self.stuck = (
                        f"after {self.ages} s of the world's time, processes wait for {[hand.waits or 'nothing' for hand in alive]}"
                    )
                    for hand in alive:
                        os.kill(hand.pid, signal.SIGKILL)
                        self._bury(hand)
                    return
                self._release(alive)

    def _hear(self, hand: Hand) -> bool:
        """False: it has ended."""
        while True:
            words = hand.wire.receive()
            if words is None:
                self._bury(hand)
                return False
            self.answer(hand, words)
            if not hand.wire.more:
                return True

    def _bury(self, hand: Hand) -> None:
        hand.wire.close()
        hand.status = os.waitstatus_to_exitcode(os.waitpid(hand.pid, 0)[1])

    def answer(self, hand: Hand, words: dict[str, Any]) -> None:
        call = words.pop("call")
        if call in ("rest", "meet", "sleep"):
            hand.waits = call
        elif call == "moved":
            self.moves.append(words)
        elif call == "said":
            self.said.append(words["text"])
        else:
            answer = self.called(call, words)
            if answer is not None:
                hand.wire.send(**answer)

    def _release(self, alive: Sequence[Hand]) -> None:
        """Everybody waits: those that wait for others have met, or else a second passes. Who sleeps, sleeps until it is alone."""
        if not alive or not all(hand.waits for hand in alive):
            return
        going = [hand for hand in alive if hand.waits == "meet"]
        if not going:
            self.pass_by(1)
            going = [hand for hand in alive if hand.waits != "sleep"] or list(alive)
        for hand in going:
            hand.waits = ""
        for hand in going:
            hand.wire.send()
