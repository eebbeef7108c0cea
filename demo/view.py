"""Progress of the demo: a live panel on a terminal, plain lines elsewhere."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

PLAIN_EVERY = 10.0


@dataclass
class Now:
    """Current act, activity and facts."""

    act: str = ""
    activity: str = ""
    facts: dict[str, str] = field(default_factory=dict)


class View:
    """`say` prints a permanent line; `show` replaces the current activity."""

    def __init__(self, console: Console, traffic: Callable[[], str], clock: Callable[[], float] = time.monotonic) -> None:
        self.console = console
        self._traffic = traffic
        self._clock = clock
        self._started = clock()
        self._now = Now()
        self._lock = threading.Lock()
        self._printed_at = 0.0
        self._live = Live(self, console=console, refresh_per_second=4, transient=True) if console.is_terminal else None

    def __enter__(self) -> View:
        if self._live:
            self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._live:
            self._live.stop()

    @property
    def elapsed(self) -> float:
        return self._clock() - self._started

    def act(self, title: str, description: str) -> None:
        with self._lock:
            self._now = Now(act=title)
        self.console.print()
        self.console.print(Text(f"{self._stamp()}  {title}", style="bold cyan"))
        self.say(description, style="dim")

    def say(self, line: str, style: str = "") -> None:
        self.console.print(Text(f"{self._stamp()}  {line}", style=style))

    def show(self, activity: str, **facts: str) -> None:
        with self._lock:
            changed = activity != self._now.activity
            self._now.activity, self._now.facts = activity, facts
        if self._live is None and (changed or self.elapsed - self._printed_at >= PLAIN_EVERY):
            self._printed_at = self.elapsed
            details = "".join(f"; {name} {value}" for name, value in facts.items())
            self.say(f"  {activity}{details}; {self._traffic()}")

    def __rich__(self) -> Group:
        with self._lock:
            act, activity, facts = self._now.act, self._now.activity, dict(self._now.facts)
        table = Table.grid(padding=(0, 2))
        for name, value in {"now": activity, **facts, "users": self._traffic()}.items():
            table.add_row(Text(name, style="dim"), Text(value))
        return Group(Text(f"\n{self._stamp()}  {act}", style="bold"), table)

    def _stamp(self) -> str:
        minutes, seconds = divmod(int(self.elapsed), 60)
        return f"{minutes:d}:{seconds:02d}"
