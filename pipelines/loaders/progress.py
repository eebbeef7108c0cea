"""Shows the speed of reading: a bar in a terminal, else a line every ten seconds; for loops and for Keras' fit.

for batch in progress(loader.epoch(0), len(loader), "epoch 1"): ... model.fit(loader.as_keras(), verbose=0,
callbacks=[keras_progress(loader)])
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Self, TypeVar

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from shared.serving.signature import OFFSETS, VALUES

if TYPE_CHECKING:
    from pipelines.loaders.loader import Loader

T = TypeVar("T")
EVERY = 10.0
Say = Callable[[str], None]


class Pace:
    """Counts rows, steps and time, without the `paused` seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._began = self._reported_at = clock()
        self.rows = self.steps = 0
        self.paused = 0.0

    def add(self, rows: int) -> None:
        self.rows += rows
        self.steps += 1

    @property
    def seconds(self) -> float:
        return self._clock() - self._began - self.paused

    @property
    def rate(self) -> float:
        return self.rows / self.seconds if self.seconds > 0 else 0.0

    @contextmanager
    def pause(self) -> Iterator[None]:
        began = self._clock()
        yield
        self.paused += self._clock() - began

    def due(self, after: float = EVERY) -> bool:
        """Returns whether a line is due after this many seconds; if so, the time starts again."""
        now = self._clock()
        if now - self._reported_at < after:
            return False
        self._reported_at = now
        return True

    def left(self, steps: int) -> float:
        """Returns the seconds until `steps` steps are done, pauses included."""
        return (self._clock() - self._began) / self.steps * (steps - self.steps) if self.steps else float("nan")


class ProgressLines:
    """Progress as lines, for logs and pipes."""

    def __init__(self, pace: Pace, steps: int | None, name: str, say: Say) -> None:
        self._pace, self._steps, self._name, self._say = pace, steps, name, say
        self._more, self._reported_steps = "", -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None and self._reported_steps != self._pace.steps:
            self._tell()

    def show(self, more: str) -> None:
        self._more = more
        if self._pace.due():
            self._tell()

    def _tell(self) -> None:
        pace = self._pace
        self._reported_steps = pace.steps
        of = f" of {self._steps:,}" if self._steps is not None else ""
        left = f", {pace.left(self._steps):.0f} s left" if self._steps is not None and pace.steps < self._steps else ""
        self._say(f"{self._name}: batch {pace.steps:,}{of}{self._more}, {pace.rate:,.0f} rows/s{left}")


class ProgressBar:
    """Progress as a bar in a terminal."""

    def __init__(self, pace: Pace, steps: int | None, name: str, console: Console) -> None:
        self._pace = pace
        shown = (
            BarColumn(),
            TextColumn("{task.completed:,.0f}/{task.total}"),
            TextColumn("{task.fields[rate]:,.0f} rows/s{task.fields[more]}"),
        )
        self._bar = Progress(TextColumn(name), *shown, TimeRemainingColumn(), console=console)
        self._task = self._bar.add_task(name, total=steps, rate=0.0, more="")

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def show(self, more: str) -> None:
        self._bar.update(self._task, completed=self._pace.steps, rate=self._pace.rate, more=more)


def display(pace: Pace, steps: int | None, name: str, say: Say | None = None) -> ProgressLines | ProgressBar:
    console = Console(stderr=True)
    if say is None and console.is_terminal:
        return ProgressBar(pace, steps, name, console)
    return ProgressLines(pace, steps, name, say or _line)


def _line(text: str) -> None:
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def progress(batches: Iterable[T], steps: int | None = None, name: str = "epoch", say: Say | None = None) -> Iterator[T]:
    """Yields the same batches. `steps` is their number if `batches` has no length; `say` takes the lines instead of stderr."""
    if steps is None and isinstance(batches, Sized):
        steps = len(batches)
    pace = Pace()
    with display(pace, steps, name, say) as shown:
        for batch in batches:
            pace.add(rows_of(batch))
            shown.show("")
            yield batch


def rows_of(batch: Any) -> int:
    """Returns the number of rows in a batch of any adapter."""
    if isinstance(batch, tuple):
        return rows_of(batch[-1])
    if isinstance(batch, Mapping):
        of_rows = [name for name in batch if not name.endswith((VALUES, OFFSETS))]
        if of_rows:
            return rows_of(batch[of_rows[0]])
        return next((rows_of(column) - 1 for name, column in batch.items() if name.endswith(OFFSETS)), 0)
    shape = getattr(batch, "shape", None)
    return len(batch) if shape is None else int(shape[0])


def keras_progress(loader: Loader, say: Say | None = None) -> Any:
    """Returns a Keras callback that shows progress as `progress` does, with the loss."""
    import keras

    class Shown(keras.callbacks.Callback):  # type: ignore[misc]
        def on_epoch_begin(self, epoch: int, logs: Mapping[str, float] | None = None) -> None:
            self._pace = Pace()
            self._display = display(self._pace, len(loader), f"epoch {epoch + 1}", say)
            self._display.__enter__()

        def on_train_batch_end(self, batch: int, logs: Mapping[str, float] | None = None) -> None:
            self._pace.add(min(loader.batch_size, loader.rows - self._pace.rows))
            self._display.show(_written(logs))

        def on_test_begin(self, logs: Mapping[str, float] | None = None) -> None:
            self._validating = self._pace.pause()
            self._validating.__enter__()

        def on_test_end(self, logs: Mapping[str, float] | None = None) -> None:
            self._validating.__exit__(None, None, None)

        def on_epoch_end(self, epoch: int, logs: Mapping[str, float] | None = None) -> None:
            self._display.show(_written(logs))
            self._display.__exit__(None, None, None)

    return Shown()


def _written(logs: Mapping[str, float] | None) -> str:
    return "".join(f", {name} {value:.4f}" for name, value in (logs or {}).items())
