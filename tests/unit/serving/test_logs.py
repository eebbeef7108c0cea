"""The log: one line a record, whatever text a record holds; ids of the context; the same fields in JSON."""

from __future__ import annotations

import io
import json
import logging
import threading

import pytest

from shared.telemetry import logs

FORGED = "2026-11-25 22:00:00,000 ERROR   services.api: forged"


@pytest.fixture
def stream(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """What a logger of its own writes with the platform's format."""
    found = io.StringIO()
    handler = logging.StreamHandler(found)
    handler.setFormatter(logs.Text("%(levelname)s %(name)s: %(message)s"))
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


def record(message: str, *args: object) -> logging.LogRecord:
    return logging.LogRecord("services.control.runs", logging.WARNING, "", 0, message, args, None)


def as_json(message: str, *args: object) -> dict[str, object]:
    line = json.loads(logs.Json().format(record(message, *args)))
    assert line.pop("time").endswith("+00:00")
    assert (line.pop("level"), line.pop("logger")) == ("warning", "services.control.runs")
    return line


def as_text(message: str, *args: object) -> str:
    return logs.Text("%(message)s").format(record(message, *args))


def test_pairs_of_a_message_are_fields_in_json_even_with_blanks_in_their_values() -> None:
    line = as_json("%s: state changed from=%s seconds=%.1f share=%d%% reason=%s", "run", "a b", 1.25, 40, "x=1 y")
    assert line == {"message": "run: state changed%", "from": "a b", "seconds": 1.25, "share": 40, "reason": "x=1 y"}
    assert as_json("loss: lost value=%s %s", float("nan"), "auc=0.5") == {"message": "loss: lost auc=0.5", "value": "nan"}


def test_no_field_replaces_the_message_or_the_level() -> None:
    assert as_json("run: forged message=%s level=%s", "no", "debug") == {"message": "run: forged"}


def test_ids_of_the_context_are_in_each_line_and_end_with_it() -> None:
    with logs.context(run="r1"), logs.context(recommender="films"):
        assert as_text("stage: started") == "stage: started run=r1 recommender=films"
        assert as_text("stage: started run=%s", "r2") == "stage: started run=r2 recommender=films"
        assert as_json("stage: started attempt=%s", "r1-etl-1") == {
            "message": "stage: started", "run": "r1", "recommender": "films", "attempt": "r1-etl-1",
        }  # fmt: skip
        assert logs.context_id("run") == "r1"
    assert as_text("stage: started") == "stage: started"
    assert logs.context_id("run") == ""


def test_the_ids_of_a_process_are_in_the_lines_of_all_its_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    logs.identify_process(run="r1", recommender="films", attempt="r1-train-2")
    lines: list[object] = []
    thread = threading.Thread(target=lambda: lines.extend([as_text("epoch: finished of=%d", 3), as_json("epoch: finished of=%d", 3)]))
    thread.start()
    thread.join()
    text, fields = lines
    assert text == "epoch: finished of=3 attempt=r1-train-2", "the name of the attempt contains the run"
    assert fields == {"message": "epoch: finished", "of": 3, "run": "r1", "recommender": "films", "attempt": "r1-train-2"}


def test_a_traceback_is_one_field_of_the_json_line() -> None:
    try:
        raise ValueError(f"a bug\n{FORGED}")
    except ValueError as error:
        failed = record("attempt: failed")
        failed.exc_info = (ValueError, error, error.__traceback__)
    (line,) = logs.Json().format(failed).splitlines()
    assert "ValueError: a bug" in json.loads(line)["traceback"]


@pytest.mark.parametrize("line", ["train: failed error=OSError: no room attempt=r1-train-2", "train: failed error=OSError: no room"])
def test_the_message_of_a_printed_line_has_no_ids(line: str) -> None:
    assert logs.message_of(line) == "train: failed error=OSError: no room"


def test_the_message_of_a_json_line_is_the_same_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "_process_ids", {"run": "r1", "attempt": "r1-train-2", "recommender": "films"})
    line = logs.Json().format(record("%s: failed error=%s", "train", "OSError: no room"))
    assert logs.message_of(line) == "train: failed error=OSError: no room"
    assert logs.message_of("17") == "17"
