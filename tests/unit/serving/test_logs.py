"""The log: one line a record, whatever text a record holds."""

from __future__ import annotations

import io
import logging

import pytest

from shared.telemetry import logs

FORGED = "2026-11-25 22:00:00,000 ERROR   services.api: forged"


@pytest.fixture
def stream(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """What a logger of its own writes with the platform's format."""
    found = io.StringIO()
    handler = logging.StreamHandler(found)
    handler.setFormatter(logs.OneLine("%(levelname)s %(name)s: %(message)s"))
    logger = logging.getLogger("test-of-the-log")
    monkeypatch.setattr(logger, "handlers", [handler])
    monkeypatch.setattr(logger, "propagate", False)
    return found


@pytest.mark.requirement("C-01")
@pytest.mark.parametrize("end", ["\n", "\r", "\r\n", "\x0b", "\x0c", "\x85", "\u2028", "\u2029"])
def test_no_text_from_outside_begins_a_record(stream: io.StringIO, end: str) -> None:
    logging.getLogger("test-of-the-log").warning("refused: %s", f"name{end}{FORGED}")
    (line,) = stream.getvalue().splitlines()
    assert line.startswith("WARNING test-of-the-log: refused: name\\")
    assert line.endswith(FORGED)


def test_no_text_from_outside_speaks_to_a_terminal(stream: io.StringIO) -> None:
    logging.getLogger("test-of-the-log").warning("refused: %s", "\x1b]0;title\x07\x9b2J\tcafé")
    assert stream.getvalue() == "WARNING test-of-the-log: refused: \\x1b]0;title\\x07\\x9b2J\tcafé\n"


def test_lines_of_a_traceback_begin_with_spaces(stream: io.StringIO) -> None:
    try:
        raise ValueError(f"a bug\n{FORGED}\x1b[2J")
    except ValueError:
        logging.getLogger("test-of-the-log").exception("failed")
    first, *others = stream.getvalue().splitlines()
    assert first == "ERROR test-of-the-log: failed"
    assert f"  {FORGED}\\x1b[2J" in others and "  ValueError: a bug" in others
    assert all(line.startswith("  ") for line in others)
