"""How fast rows go by: said every ten seconds, and at the end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rich.console import Console

from pipelines.loaders import progress as module
from pipelines.loaders.columns import ListColumn
from pipelines.loaders.loader import Loader, open_loader
from pipelines.loaders.progress import Pace, ProgressBar, ProgressLines, progress, rows_of


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def loader(tmp_path: Path) -> Loader:
    pq.write_table(pa.table({"a": np.arange(50, dtype=np.float32), "label": np.arange(50) % 2}), tmp_path / "rows.parquet")
    return open_loader(tmp_path / "rows.parquet", batch_size=20)


def test_a_pace_counts_rows_of_the_time_that_is_not_paused() -> None:
    clock = Clock()
    pace = Pace(clock)
    assert pace.rate == 0.0
    pace.add(100)
    clock.now += 2
    with pace.pause():
        clock.now += 3
    assert (pace.rate, pace.paused, pace.left(steps=4)) == (50.0, 3.0, 15.0)


def test_it_is_due_every_ten_seconds() -> None:
    clock = Clock()
    pace, due = Pace(clock), []
    for _ in range(25):
        clock.now += 1
        due.append(pace.due())
    assert [at + 1 for at, one in enumerate(due) if one] == [10, 20]


def test_lines_say_where_it_is_how_fast_and_how_long_it_will_take() -> None:
    clock, said = Clock(), list[str]()
    pace = Pace(clock)
    with ProgressLines(pace, 3, "epoch 1", said.append) as lines:
        for _ in range(3):
            pace.add(1_000_000)
            clock.now += 10
            lines.show(", loss 0.5000")
    assert said == [
        "epoch 1: batch 1 of 3, loss 0.5000, 100,000 rows/s, 20 s left",
        "epoch 1: batch 2 of 3, loss 0.5000, 100,000 rows/s, 10 s left",
        "epoch 1: batch 3 of 3, loss 0.5000, 100,000 rows/s",
    ]


def test_a_loop_gets_the_same_batches_and_one_line_at_its_end(loader: Loader) -> None:
    said: list[str] = []
    found = [len(batch["a"]) for batch in progress(loader.epoch(0), len(loader), "epoch 1", said.append)]
    assert found == [20, 20, 10]
    assert len(said) == 1
    assert said[0].startswith("epoch 1: batch 3 of 3, ")


def test_a_loop_that_fails_has_no_last_line(loader: Loader) -> None:
    said: list[str] = []

    def broken() -> Any:
        yield next(iter(loader.epoch(0)))
        raise OSError

    with pytest.raises(OSError):
        list(progress(broken(), 3, say=said.append))
    assert said == []


def test_in_a_terminal_there_is_a_bar(loader: Loader, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(module, "Console", lambda **_: Console(force_terminal=True, width=120, stderr=True))
    assert isinstance(module.display(Pace(), 3, "epoch 1"), ProgressBar)
    assert len(list(progress(loader.epoch(0), 3, "epoch 1"))) == 3
    shown = capsys.readouterr().err
    assert "epoch 1" in shown
    assert "3/3" in shown
    assert "rows/s" in shown


def test_elsewhere_there_are_lines(loader: Loader, capsys: pytest.CaptureFixture[str]) -> None:
    list(progress(loader.epoch(0), 3, "epoch 1"))
    assert capsys.readouterr().err.startswith("epoch 1: batch 3 of 3, ")


LISTS = ListColumn(np.arange(5), np.array([0, 2, 5]))


BATCHES: list[Any] = [
    {"genres": LISTS},
    {"genres__values": LISTS.values, "genres__offsets": LISTS.offsets},
    {"genres__values": LISTS.values, "genres__lengths": LISTS.lengths},
    {"genres__values": LISTS.values, "genres__offsets": LISTS.offsets[:-1], "age": np.zeros(2)},
    {"pair": np.zeros((2, 7))},
    ({"genres__values": LISTS.values}, np.zeros(2)),
]


def test_rows_are_counted_in_every_layout(subtests: pytest.Subtests) -> None:
    for batch in BATCHES:
        with subtests.test(columns=str(batch)):
            assert rows_of(batch) == 2
