"""What each door adds to a row: batches of 32,768 rows that are there already go through it, so that nothing else is timed.

    python -m benchmarks.loader_doors [--runs 5] [--batches 60]

Rows have user, item, two floats, genres as a list of none to four, and a label. `layout` is what lists cost in the loader's threads; the
doors follow, with that done. Beside ours is what TensorFlow and Keras have for batches that are arrays. `fed to fit` is what Keras' own
loop goes through; in `fit` a model of one weight is fitted on it, on one thread of torch. `cpu` is the process's time, all threads
together: the fairer figure on a busy machine.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count, cycle, islice, pairwise
from typing import Any, cast

import numpy as np

from benchmarks.report import Row, publish
from pipelines.loaders.adapters.layout import Chosen, Dense, PaddedLayout, RaggedLayout, layout_stage, layouts
from pipelines.loaders.adapters.opened import OpenDataset, opened
from pipelines.loaders.columns import Array, Column, ListColumn, pack_lists
from pipelines.loaders.kinds import ColumnType, described_by
from pipelines.loaders.loader import Loader

ROWS, GENRES, LINE = 32_768, 20, 64
TIMES, FITTED = 20, 4
"""How often the batches come in an epoch, and in one that is fitted."""
LAYOUTS: dict[str, Chosen] = {
    "offsets": "offsets",
    "lengths": "lengths",
    "padded, as the longest": "padded",
    "padded to 4": PaddedLayout(4),
    "dense of 20": Dense(GENRES),
}
_RANDOM = np.random.default_rng(0)
Batch = dict[str, Column]
Found = list[tuple[str, str, float, float]]
"""Case, contender, nanoseconds of a row, and of CPU."""


@dataclass(frozen=True)
class Ready:
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


def batch(seed: int, aligned: bool) -> Batch:
    """On a line of the processor's cache, where TensorFlow takes an array as it is, or beside one."""
    random = np.random.default_rng(seed)
    lengths = random.integers(0, 5, ROWS)
    columns: Batch = {name: _lying(random.integers(0, 10**6, ROWS).astype(np.int32), aligned) for name in ("user", "item")}
    columns |= {name: _lying(random.random(ROWS, np.float32), aligned) for name in ("a", "b", "label")}
    values = _lying(random.integers(0, GENRES, lengths.sum()).astype(np.int32), aligned)
    return columns | {"genres": ListColumn(values, _lying(np.append(0, np.cumsum(lengths)), aligned))}


def _lying(array: Array, aligned: bool) -> Array:
    room = np.empty(array.nbytes + 2 * LINE, np.uint8)
    begin = -room.ctypes.data % LINE + (0 if aligned else LINE // 4)
    found = room[begin : begin + array.nbytes].view(array.dtype)
    found[:] = array
    return found


def _held(lists: Column) -> Column:
    assert isinstance(lists, ListColumn)
    return pack_lists(lists.values, lists.offsets).column()


def timed(once: Callable[[], object], rows: int) -> tuple[float, float]:
    began, cpu = time.perf_counter(), time.process_time()
    once()
    return (time.perf_counter() - began) * 1e9 / rows, (time.process_time() - cpu) * 1e9 / rows


def laid_out(batches: tuple[Batch, ...], chosen: Chosen) -> tuple[Batch, ...]:
    lay = layout_stage(layouts(chosen, described_by(batches[0]), RaggedLayout()))
    return tuple(lay(one, _RANDOM) for one in batches)


def of_layouts(batches: int) -> Found:
    """Of short lists, as a loader holds them, and of plain ones."""
    found: Found = []
    plain = tuple(batch(seed, aligned=True) for seed in range(min(batches, 20)))
    for kind in ("short lists", "plain lists"):
        for name, chosen in LAYOUTS.items():
            lay = layout_stage(layouts(chosen, described_by(plain[0]), RaggedLayout()))
            for _ in range(2):  # the first time for what is done once
                fresh = [{"genres": _held(one["genres"]) if kind == "short lists" else one["genres"]} for one in plain]
                times = timed(lambda lay=lay, fresh=fresh: deque((lay(one, _RANDOM) for one in fresh), 0), ROWS * len(fresh))  # type: ignore[misc]
            found.append(("layout", f"{name} ({kind})", *times))
    return found


def of_tensorflow(batches: int) -> Found:
    import tensorflow as tf

    from pipelines.loaders.adapters.tensorflow import dataset

    eaten = _eater()

    def theirs(some: tuple[Batch, ...]) -> Any:
        spec = {name: tf.TensorSpec((None,), one.dtype) for name, one in some[0].items() if name != "label"}
        pairs = [({name: one for name, one in each.items() if name != "label"}, each["label"]) for each in some]
        signature = (spec, tf.TensorSpec((None,), tf.float32))
        return tf.data.Dataset.from_generator(lambda: islice(cycle(pairs), len(pairs) * TIMES), output_signature=signature).prefetch(2)

    found: Found = []
    for aligned in (True, False):
        place = "as they are" if aligned else "copied"
        plain = tuple(batch(seed, aligned) for seed in range(batches))
        flat = laid_out(plain, "offsets")
        made = {f"as_dataset, ragged ({place})": _dataset(dataset, plain), f"as_dataset, offsets ({place})": _dataset(dataset, flat)}
        made[f"from_generator, offsets ({place})"] = theirs(flat)
        for name, some in made.items():
            eaten(some)

            def once(some: Any = some) -> None:
                assert int(eaten(some)) == ROWS * batches * TIMES

            found.append(("tf.data", name, *timed(once, ROWS * batches * TIMES)))
    return found + of_fit(batches)


def _eater() -> Callable[[Any], Any]:
    import tensorflow as tf

    @tf.function  # type: ignore[untyped-decorator]
    def eaten(some: Any) -> Any:
        rows = 0
        for _, label in some:
            rows += tf.shape(label)[0]
        return rows

    return cast(Callable[[Any], Any], eaten)


def _dataset(dataset: Callable[..., Any], batches: tuple[Batch, ...]) -> Any:
    door = _door(Ready(batches, TIMES))
    return dataset(door, pairwise(count(0, len(door.loader))), len(door.loader))


def _door(ready: Ready) -> OpenDataset:
    return opened(cast(Loader, ready), None, "ragged", RaggedLayout())


def of_fit(batches: int) -> Found:
    import keras

    from pipelines.loaders.adapters.keras import RepeatedEpochs, as_keras, py_dataset

    ready = Ready(laid_out(tuple(batch(seed, aligned=True) for seed in range(batches)), PaddedLayout(4)), FITTED)
    door, steps = _door(ready), len(ready)

    def pairs() -> Iterator[Any]:
        while True:
            yield from (door.divided(one) for one in door.batches(0, steps))

    made: dict[str, Callable[[], Any]] = {
        "as_keras": lambda: as_keras(cast(Loader, ready)),
        "PyDataset": lambda: py_dataset(RepeatedEpochs(door, 0)),
        "generator": pairs,
    }
    backend, found = keras.backend.backend(), Found()
    for name, make in made.items():
        eat = _fed(backend, steps)
        eat(make)  # once for what is done once
        found.append((f"fed to fit, {backend}", name, *timed(lambda eat=eat, make=make: eat(make), ROWS * steps)))  # type: ignore[misc]
    for name, make in made.items():
        keras.utils.set_random_seed(0)
        inputs = {one: keras.Input((4,) if one == "genres" else (), name=one) for one in door.columns if one != "label"}
        model = keras.Model(inputs, keras.layers.Dense(1)(keras.layers.Reshape((1,))(inputs["a"])))
        model.compile("sgd", "mse", jit_compile=False)
        model.fit(make(), steps_per_epoch=2, verbose=0, shuffle=False)
        x = make()

        def once(model: Any = model, x: Any = x) -> None:
            model.fit(x, steps_per_epoch=steps, verbose=0, shuffle=False)

        found.append((f"fit, {backend}", name, *timed(once, ROWS * steps)))
    return found


def _fed(backend: str, steps: int) -> Callable[[Callable[[], Any]], None]:
    """Goes through what Keras makes of it for its own loop."""
    from keras.src.trainers.data_adapters import get_data_adapter

    def through_tensorflow(make: Callable[[], Any]) -> None:
        assert int(eaten(get_data_adapter(make()).get_tf_dataset().take(steps))) == ROWS * steps

    def through_torch(make: Callable[[], Any]) -> None:
        deque(islice(get_data_adapter(make()).get_torch_dataloader(), steps), 0)

    if backend == "tensorflow":
        eaten = _eater()
        return through_tensorflow
    import torch

    torch.set_num_threads(1)
    return through_torch


_PARTS: dict[str, tuple[Callable[[int], Found], str]] = {
    "layouts": (of_layouts, "tensorflow"),
    "tensorflow": (of_tensorflow, "tensorflow"),
    "torch": (of_fit, "torch"),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--batches", type=int, default=60)
    parser.add_argument("--part", choices=list(_PARTS), help=argparse.SUPPRESS)
    said = parser.parse_args()
    if said.part is not None:
        sys.stdout.write(json.dumps(_PARTS[said.part][0](said.batches)) + "\n")
        return 0
    values: dict[tuple[str, str, str], list[float]] = {}
    for _ in range(said.runs):
        for part, (_, backend) in _PARTS.items():
            for case, contender, wall, cpu in _run(part, backend, said.batches):
                values.setdefault((case, contender, "time"), []).append(wall)
                values.setdefault((case, contender, "cpu"), []).append(cpu)
    publish("loader-doors", [Row(case, contender, metric, "ns a row", found) for (case, contender, metric), found in values.items()])
    return 0


def _run(part: str, backend: str, batches: int) -> Found:
    """In a process of its own: a backend of Keras is chosen once."""
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-m", "benchmarks.loader_doors", "--part", part, "--batches", str(batches)],
        env=os.environ | {"KERAS_BACKEND": backend, "TF_CPP_MIN_LOG_LEVEL": "2"},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return [(str(case), str(name), float(wall), float(cpu)) for case, name, wall, cpu in json.loads(done.stdout.splitlines()[-1])]


if __name__ == "__main__":
    raise SystemExit(main())
