"""Adapter to Keras: the input of `model.fit` (x or validation_data), in the fastest form for the backend.

TensorFlow gets a tf.data.Dataset, torch a DataLoader, any other backend a keras.utils.PyDataset. Each epoch of `fit` is an epoch of the
loader, in its own order.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

from pipelines.loaders.adapters.layout import Chosen, PaddedLayout
from pipelines.loaders.adapters.opened import OpenDataset, opened
from pipelines.loaders.adapters.tensorflow import dataset
from pipelines.loaders.epochs import Columns, EpochReader
from shared.domain.errors import Invalid


def as_keras(loader: EpochReader, label: str | None = None, lists: Chosen = "padded", start: tuple[int, int] = (0, 0)) -> Any:
    """Returns the input; `start` is the epoch and batch with which the first epoch of fit begins. Each epoch has len(loader) batches."""
    import keras

    backend = keras.backend.backend()
    door = opened(loader, label, lists, PaddedLayout())
    ragged = [name for name, column in door.columns.items() if column.ragged]
    if ragged and backend != "tensorflow":
        raise Invalid(f"lists: column '{ragged[0]}': Keras on {backend} takes no ragged lists; set 'padded' or Dense(size)")
    if backend == "tensorflow":
        return dataset(door, itertools.pairwise(itertools.count(door.position(start), len(loader))), len(loader))
    passes = RepeatedEpochs(door, door.position(start))
    return data_loader(passes) if backend == "torch" else py_dataset(passes)


_LOOKED_AT = 2
"""Batches that Keras may request before an epoch begins."""


class RepeatedEpochs:
    """Yields epochs in turn. An epoch of which at most one batch was taken begins again, because Keras takes a batch to build the model."""

    def __init__(self, door: OpenDataset, first: int) -> None:
        self.door, self._first = door, first

    def __len__(self) -> int:
        return len(self.door.loader)

    def __iter__(self) -> Iterator[Columns]:
        first, last = self._first, self._first + len(self)
        for at, batch in enumerate(self.door.batches(first, last), first):
            if at > first or last - first == 1:
                self._first = last
            yield batch


def data_loader(passes: RepeatedEpochs) -> Any:
    from torch.utils.data import DataLoader, IterableDataset

    from pipelines.loaders.adapters.pytorch.tensors import tensors

    class Epochs(IterableDataset):  # type: ignore[misc]
        def __len__(self) -> int:
            return len(passes)

        def __iter__(self) -> Iterator[Any]:
            return (passes.door.divided(tensors(batch)) for batch in passes)

    return DataLoader(Epochs(), batch_size=None)


def py_dataset(passes: RepeatedEpochs) -> Any:
    from keras.utils import PyDataset

    class Batches(PyDataset):  # type: ignore[misc]
        """Keras requests batches by number in order, and the first batches several times, so these are kept."""

        def __init__(self) -> None:
            super().__init__()
            self._running: Iterator[Any] = iter(())
            self._next = 0
            self._replayed_batches: list[Any] = []

        @property
        def num_batches(self) -> int:
            return len(passes)

        def __getitem__(self, at: int) -> Any:
            if at == 0 and (self._next > _LOOKED_AT or self._next == len(passes)):
                self._next = 0
            if at < min(self._next, _LOOKED_AT):
                return self._replayed_batches[at]
            if at != self._next:
                raise Invalid(f"Keras requests batch {at}, but the next is {self._next}; set fit(shuffle=False), as the loader shuffles")
            if at == 0:
                self._running, self._replayed_batches = iter(passes), []
            self._next += 1
            batch = passes.door.divided(next(self._running))
            if at < _LOOKED_AT:
                self._replayed_batches.append(batch)
            return batch

    return Batches()
