"""`--watch`: repeats a request until its object ends or Ctrl-C.

A terminal shows the newest answer on a separate screen and keeps the last answer at the end. A pipe gets the changed lines; with `--json`,
a line of JSON for each changed answer. A platform that does not answer is asked again for `PATIENCE` seconds."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from services.cli import terminal
from services.cli.exit_codes import Exit
from services.cli.faults import ReportedError
from services.cli.output import drawn, show, show_json_line

if TYPE_CHECKING:
    from services.cli.client import Client

EVERY = 1.0
PATIENCE = 30.0
"""Seconds without an answer before the command gives up."""

Watch = Annotated[bool, typer.Option("--watch", "-w", help="Refresh each second until the end or Ctrl-C; a pipe gets only changes.")]

Ask = Callable[[], Any]
Draw = Callable[[Any], None]
Ended = Callable[[Any], Exit | None]


def never(_: Any) -> Exit | None:
    """End condition of a list: a list never ends."""
    return None


def shown(ask: Ask, draw: Draw, as_json: bool, watch: bool, ended: Ended = never) -> None:
    """Shows an answer once, or watches it; the end of a watched object sets the exit code."""
    if not watch:
        show(ask(), as_json, draw)
        return
    code = _watched(ask, draw, as_json, ended)
    if code is not Exit.DONE:
        raise typer.Exit(code)


def _watched(ask: Ask, draw: Draw, as_json: bool, ended: Ended) -> Exit:
    picture: WatchOutput = LineOutput(draw)
    if as_json:
        picture = DocumentOutput()
    elif terminal.redraws():
        picture = ScreenOutput(draw)
    with picture:
        value = ask()
        while True:
            picture.show(value)
            code = ended(value)
            if code is not None:
                return code
            time.sleep(EVERY)
            value = again(ask, picture.note)


def again(ask: Ask, note: Callable[[str], None]) -> Any:
    """Retries a request to a platform that answered before, for up to `PATIENCE` seconds."""
    good = time.monotonic()
    while True:
        try:
            return ask()
        except ReportedError as error:
            if error.code != Exit.AWAY or time.monotonic() - good > PATIENCE:
                raise
            note(str(error))
        time.sleep(EVERY)


class Away:
    """Reports once on stderr that the platform does not answer."""

    def __init__(self) -> None:
        self._printed = False

    def __call__(self, why: str) -> None:
        if not self._printed:
            typer.echo(f"eyas: {why}; trying again", err=True)
        self._printed = True


def patiently(http: Client, path: str, **query: Any) -> Any:
    return again(lambda: http.get(path, **query), Away())


def stream_events(http: Client, path: str) -> Iterator[tuple[str, Any]]:
    """Yields each event of a stream once. Reconnects when a stream breaks, because the platform may restart."""
    last: str | None = None
    heard: float | None = None
    away = Away()
    while True:
        try:
            for name, at, data in http.events(path, last):
                last, away = at or last, Away()
                yield name, data
            heard = time.monotonic()
        except ReportedError as error:
            if error.code != Exit.AWAY or heard is None or time.monotonic() - heard > PATIENCE:
                raise
            away(str(error))
        time.sleep(EVERY)


class WatchOutput:
    """Output of a watched answer."""

    def show(self, value: Any) -> None:
        raise NotImplementedError

    def note(self, why: str) -> None:
        """Reports that the last request failed."""

    def __enter__(self) -> WatchOutput:
        return self

    def __exit__(self, *_: object) -> None:
        return


class DocumentOutput(WatchOutput):
    def __init__(self) -> None:
        self._last: Any = None

    def show(self, value: Any) -> None:
        if value != self._last:
            show_json_line(value)
        self._last = value


class LineOutput(WatchOutput):
    """Prints the lines that the last answer did not have. Blanks are ignored, because column widths can change."""

    def __init__(self, draw: Draw) -> None:
        self._draw = draw
        self._last: frozenset[str] = frozenset()
        self._away = Away()

    def show(self, value: Any) -> None:
        lines = drawn(lambda: self._draw(value))
        for line in lines:
            if line.strip() and _words(line) not in self._last:
                typer.echo(line)
        self._last, self._away = frozenset(map(_words, lines)), Away()

    def note(self, why: str) -> None:
        self._away(why)


class ScreenOutput(WatchOutput):
    """Alternate screen of a terminal, so that the earlier text returns at the end."""

    def __init__(self, draw: Draw) -> None:
        self._draw = draw
        self._value: Any = None
        self._has_value = False

    def show(self, value: Any) -> None:
        self._value, self._has_value = value, True
        self._paint(terminal.painted("press Ctrl-C to end", "dim"))

    def note(self, why: str) -> None:
        self._paint(terminal.painted(f"{why}; trying again", "yellow"))

    def __enter__(self) -> WatchOutput:
        signal.signal(signal.SIGTERM, signal.default_int_handler)  # like Ctrl-C: restores the screen
        _write("\x1b[?1049h\x1b[?25l\x1b[?7l")
        return self

    def __exit__(self, *_: object) -> None:
        _write("\x1b[?7h\x1b[?25h\x1b[?1049l")
        if self._has_value:
            self._draw(self._value)

    def _paint(self, last: str) -> None:
        lines = drawn(lambda: self._draw(self._value))
        room = max(terminal.height() - 2, 1)
        if len(lines) > room:
            lines = [*lines[: room - 1], terminal.painted(f"{len(lines) - room + 1} more lines: use a taller terminal", "dim")]
        _write("\x1b[H" + "".join(f"{line}\x1b[K\r\n" for line in lines) + f"{last}\x1b[K\x1b[J")


def _write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


def _words(line: str) -> str:
    return " ".join(line.split())
