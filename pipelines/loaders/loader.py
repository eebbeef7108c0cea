"""The Parquet loader for users: an epoch reader with adapters to NumPy, Arrow, TensorFlow, Keras and PyTorch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipelines.loaders.adapters import plain
from pipelines.loaders.adapters.layout import Chosen
from pipelines.loaders.chunks import open_chunks
from pipelines.loaders.decoding import Nulls
from pipelines.loaders.epochs import EpochReader
from pipelines.loaders.files import Paths
from pipelines.loaders.skipping import Corruption, SkipLog
from shared.domain.errors import BadData

if TYPE_CHECKING:
    import pyarrow as pa

    from pipelines.loaders.adapters.torch import TorchBatches


@dataclass(frozen=True)
class Loader(EpochReader):
    """An epoch reader that gives its batches to a framework."""

    def as_numpy(
        self, label: str | None = None, lists: Chosen = "offsets", epochs: int | None = 1, start: tuple[int, int] = (0, 0)
    ) -> Iterator[Any]:
        """Returns batches of arrays: see adapters/plain.py."""
        return plain.as_numpy(self, label, lists, epochs, start)

    def as_arrow(self, epochs: int | None = 1, start: tuple[int, int] = (0, 0)) -> Iterator[pa.RecordBatch]:
        """Returns Arrow record batches: see adapters/plain.py."""
        return plain.as_arrow(self, epochs, start)

    def as_dataset(
        self, label: str | None = None, lists: Chosen = "ragged", epochs: int | None = 1, start: tuple[int, int] = (0, 0)
    ) -> Any:
        """Returns a tf.data.Dataset: see adapters/tensorflow.py."""
        from pipelines.loaders.adapters.tensorflow import as_dataset

        return as_dataset(self, label, lists, epochs, start)

    def as_keras(self, label: str | None = None, lists: Chosen = "padded", start: tuple[int, int] = (0, 0)) -> Any:
        """Returns the x or validation_data of a Keras model's `fit`: see adapters/keras.py."""
        from pipelines.loaders.adapters.keras import as_keras

        return as_keras(self, label, lists, start)

    def as_torch(self, label: str | None = None, **settings: Any) -> TorchBatches:
        """Returns an IterableDataset of PyTorch; `settings`: see as_torch in adapters/torch.py."""
        from pipelines.loaders.adapters.torch import as_torch

        return as_torch(self, label, **settings)


def open_loader(
    paths: Paths,
    columns: Sequence[str] | None = None,
    *,
    nulls: Nulls | None = None,
    filesystem: Any = None,
    corrupt: Corruption = "stop",
    **settings: Any,
) -> Loader:
    """Opens a loader: `paths` as in `find_files`, `columns` and `nulls` as in `open_chunks`, `settings` are Loader's."""
    chunks = open_chunks(paths, columns, nulls=nulls, filesystem=filesystem, corrupt=corrupt)
    loader = Loader(chunks, corrupt=corrupt, skipped=SkipLog({lost.name: lost for lost in chunks.lost}), **settings)
    rows, world = chunks.rows, loader.shard.world
    where = str(paths) if isinstance(paths, str | Path) else ", ".join(map(str, paths[:3])) + (", ..." if len(paths) > 3 else "")
    if not rows:
        raise BadData(f"no rows in {where}")
    if rows < world:
        raise BadData(f"{rows} rows in {where}: too few for {world} ranks")
    if not len(loader):
        raise BadData(f"{rows:,} rows in {where}: no full batch of {loader.batch_size:,}; use smaller batches, or drop_last=False")
    return loader
