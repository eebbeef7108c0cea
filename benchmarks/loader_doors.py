"""Cost of each adapter of the loader, a row: batches of 32,768 rows are made before, so that nothing else is timed.

    python -m benchmarks.loader_doors [--runs 5] [--batches 60]

Rows have user, item, two floats, genres as a list of none to four, and a label. `layout` is the cost of lists in the loader's threads; the
adapters follow, with that done. Beside ours are the ways of TensorFlow and Keras for batches that are arrays. `fed to fit` is what Keras'
own loop iterates; in `fit` a model of one weight is fitted on it, on one thread of torch. `cpu` is the process's time, all threads
together: the fairer figure on a busy machine.
"""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import count, cycle, islice, pairwise
from typing import Annotated, Any, cast

import numpy as np

from benchmarks.harness import HIDDEN, Outcome, Row, benchmark, watched
from benchmarks.tables import answer
from pipelines.loaders.adapters.layout import Chosen, Dense, PaddedLayout, RaggedLayout, layout_stage, layouts
from pipelines.loaders.adapters.opened import OpenDataset, opened
from pipelines.loaders.columns import Array, Column, ListColumn, pack_lists
from pipelines.loaders.kinds import ColumnType, described_by
from pipelines.loaders.loader import Loader

ROWS, GENRES, LINE = 32_768, 20, 64
TIMES, FITTED = 20, 4
"""How often the batches come in an epoch, and in a fitted epoch."""
LAYOUTS: dict[str, Chosen] = {
    "offsets": "offsets",
    "lengths": "lengths",
    "padded, as the longest": "padded",
    "padded to 4": PaddedLayout(4),
    "dense of 20": Dense(GENRES),
}
_RANDOM = np.random.default_rng(0)
Batch = dict[str, Column]
Figures = Iterator[tuple[str, str, float, float]]
"""Case, contender, nanoseconds of a row, and of CPU."""


@dataclass(frozen=True)
class RepeatedBatches:
    """Stands for a loader: the same batches over and over in every epoch."""

    batches: tuple[Batch, ...]
    times: int
    stages: tuple[Any, ...] = ()

    @property
    def columns(self) -> dict[str, ColumnType]:
        return described_by(self.batches[0])

    def __len__(self) -> int:
        return len(self.batches) * self.times

    def epoch(self, _: int, start: int = 0) -> Iterator[Batch]:
        yield from islice(cycle(self.batches), start, len(self))

    def dataset(self) -> OpenDataset:
        return opened(cast(Loader, self), None, "ragged", RaggedLayout())


def batches_of(number: int, aligned: bool = True) -> tuple[Batch, ...]:
    return tuple(batch(seed, aligned) for seed in range(number))


def batch(seed: int, aligned: bool) -> Batch:
    """Arrays begin on a line of the processor's cache, where TensorFlow takes an array as it is, or beside one."""
    random = np.random.default_rng(seed)
    lengths = random.integers(0, 5, ROWS)
    columns: Batch = {name: _placed(random.integers(0, 10**6, ROWS).astype(np.int32), aligned) for name in ("user", "item")}
    columns |= {name: _placed(random.random(ROWS, np.float32), aligned) for name in ("a", "b", "label")}
    values = _placed(random.integers(0, GENRES, lengths.sum()).astype(np.int32), aligned)
    return columns | {"genres": ListColumn(values, _placed(np.append(0, np.cumsum(lengths)), aligned))}


def _placed(array: Array, aligned: bool) -> Array:
    room = np.empty(array.nbytes + 2 * LINE, np.uint8)
    begin = -room.ctypes.data % LINE + (0 if aligned else LINE // 4)
    placed = room[begin : begin + array.nbytes].view(array.dtype)
    placed[:] = array
    return placed


def timed(work: Callable[[], object], rows: int) -> tuple[float, float]:
    """Nanoseconds a row, and of CPU."""
    began, cpu = time.perf_counter(), time.process_time()
    work()
    return (time.perf_counter() - began) * 1e9 / rows, (time.process_time() - cpu) * 1e9 / rows


def layout_of(batches: tuple[Batch, ...], chosen: Chosen) -> Callable[[Batch], Batch]:
    lay = layout_stage(layouts(chosen, described_by(batches[0]), RaggedLayout()))
    return lambda columns: lay(columns, _RANDOM)


def measure_layouts(number: int) -> Figures:
    """Of short lists, as a loader has them, and of plain lists."""
    plain = batches_of(min(number, 20))
    for kind in ("short lists", "plain lists"):
        for name, chosen in LAYOUTS.items():
            lay = layout_of(plain, chosen)
            for _ in range(2):  # the first time does work that is done once
                lists = [cast(ListColumn, columns["genres"]) for columns in plain]
                packed = [pack_lists(each.values, each.offsets).column() for each in lists] if kind == "short lists" else lists
                fresh = [{"genres": each} for each in packed]
                times = timed(lambda lay=lay, fresh=fresh: deque(map(lay, fresh), 0), ROWS * len(fresh))  # type: ignore[misc]
            yield "layout", f"{name} ({kind})", *times


def measure_tensorflow(number: int) -> Figures:
    import tensorflow as tf

    from pipelines.loaders.adapters.tensorflow import dataset

    count_rows = _row_counter()

    def ours(batches: tuple[Batch, ...]) -> Any:
        data = RepeatedBatches(batches, TIMES).dataset()
        return dataset(data, pairwise(count(0, len(data.loader))), len(data.loader))

    def theirs(batches: tuple[Batch, ...]) -> Any:
        spec = {name: tf.TensorSpec((None,), column.dtype) for name, column in batches[0].items() if name != "label"}
        pairs = [({name: column for name, column in each.items() if name != "label"}, each["label"]) for each in batches]
        signature = (spec, tf.TensorSpec((None,), tf.float32))
        return tf.data.Dataset.from_generator(lambda: islice(cycle(pairs), len(pairs) * TIMES), output_signature=signature).prefetch(2)

    for aligned in (True, False):
        place = "as they are" if aligned else "copied"
        plain = batches_of(number, aligned)
        flat = tuple(map(layout_of(plain, "offsets"), plain))
        for name, data in {
            f"as_dataset, ragged ({place})": ours(plain),
            f"as_dataset, offsets ({place})": ours(flat),
            f"from_generator, offsets ({place})": theirs(flat),
        }.items():
            rows = ROWS * number * TIMES
            assert int(count_rows(data)) == rows
            yield "tf.data", name, *timed(lambda data=data: count_rows(data), rows)  # type: ignore[misc]
    yield from measure_fit(number)


def _row_counter() -> Callable[[Any], Any]:
    import tensorflow as tf

    @tf.function  # type: ignore[untyped-decorator]
    def count_rows(pairs: Any) -> Any:
        rows = 0
        for _, label in pairs:
            rows += tf.shape(label)[0]
        return rows

    return cast(Callable[[Any], Any], count_rows)


def measure_fit(number: int) -> Figures:
    import keras

    from pipelines.loaders.adapters.keras import RepeatedEpochs, as_keras, py_dataset

    plain = batches_of(number)
    loader = RepeatedBatches(tuple(map(layout_of(plain, PaddedLayout(4)), plain)), FITTED)
    data, steps = loader.dataset(), len(loader)

    def pairs() -> Iterator[Any]:
        while True:
            yield from (data.divided(columns) for columns in data.batches(0, steps))

    makers: dict[str, Callable[[], Any]] = {
        "as_keras": lambda: as_keras(cast(Loader, loader)),
        "PyDataset": lambda: py_dataset(RepeatedEpochs(data, 0)),
        "generator": pairs,
    }
    backend = keras.backend.backend()
    for name, make in makers.items():
        feed = _feeder(backend, steps)
        feed(make())  # the first time does work that is done once
        yield f"fed to fit, {backend}", name, *timed(lambda feed=feed, make=make: feed(make()), ROWS * steps)  # type: ignore[misc]
    for name, make in makers.items():
        keras.utils.set_random_seed(0)
        inputs = {column: keras.Input((4,) if column == "genres" else (), name=column) for column in data.columns if column != "label"}
        model = keras.Model(inputs, keras.layers.Dense(1)(keras.layers.Reshape((1,))(inputs["a"])))
        model.compile("sgd", "mse", jit_compile=False)
        model.fit(make(), steps_per_epoch=2, verbose=0, shuffle=False)
        fit = partial(model.fit, make(), steps_per_epoch=steps, verbose=0, shuffle=False)
        yield f"fit, {backend}", name, *timed(fit, ROWS * steps)


def _feeder(backend: str, steps: int) -> Callable[[Any], None]:
    """Iterates what Keras makes of it for its own loop."""
    from keras.src.trainers.data_adapters import get_data_adapter

    if backend == "tensorflow":
        count_rows = _row_counter()

        def through_tensorflow(data: Any) -> None:
            assert int(count_rows(get_data_adapter(data).get_tf_dataset().take(steps))) == ROWS * steps

        return through_tensorflow
    import torch

    torch.set_num_threads(1)
    return lambda data: cast(None, deque(islice(get_data_adapter(data).get_torch_dataloader(), steps), 0))


_PARTS: dict[str, tuple[Callable[[int], Figures], str]] = {
    "layouts": (measure_layouts, "tensorflow"),
    "tensorflow": (measure_tensorflow, "tensorflow"),
    "torch": (measure_fit, "torch"),
}
"""With the backend of Keras, which is chosen once in a process."""


@benchmark("loader-doors")
def loader_doors(runs: int = 5, batches: int = 60, part: Annotated[str, HIDDEN] = "") -> Iterator[Outcome]:
    if part:
        answer({"figures": list(_PARTS[part][0](batches))})
    values: dict[tuple[str, str, str], list[float]] = {}
    for _ in range(runs):
        for name, (_, backend) in _PARTS.items():
            command = [sys.executable, "-m", "benchmarks.loader_doors", "--part", name, "--batches", str(batches)]
            for case, contender, wall, cpu in watched(command, KERAS_BACKEND=backend).document["figures"]:
                values.setdefault((case, contender, "time"), []).append(wall)
                values.setdefault((case, contender, "cpu"), []).append(cpu)
    for (case, contender, metric), each in values.items():
        yield Row(case, contender, metric, "ns a row", each)


if __name__ == "__main__":
    loader_doors()
