"""Our loader as a contender of the loader benchmark: `python -m benchmarks.loader_eyas numpy|tensorflow|torch-parquet|cache ...`

`numpy-fill` is an epoch that writes the cache from which the others read, `numpy-first` one that writes a cache of its own.
`numpy-parquet@256` has a budget of so many MiB; a pool of 0 is as large as memory allows. Lists come as users of each framework want
them: ragged in TensorFlow, values and offsets in torch.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.peers.loader_run import AGE, ITEM, LABEL, LENGTHS, RATING, USER, VALUES, Epoch, Request, read_request, run
from pipelines.loaders.adapters.layout import PaddedLayout
from pipelines.loaders.cache import Cache
from pipelines.loaders.loader import Loader, open_loader

MEMORY = 512
CACHE = 64 << 30


def loader_of(request: Request) -> Loader:
    contender, _, memory = request.contender.partition("@")
    cache = None if contender.endswith("parquet") else Cache(request.folder / ("first" if contender.endswith("first") else "cache"), CACHE)
    pool, budget = request.pool or None, int(memory or MEMORY) << 20
    return open_loader(request.files(), batch_size=request.batch, pool=pool, memory=budget, cache=cache)


def padded_dataset(folder: Path, batch: int, pool: int, source: str, width: int) -> Any:
    """An endless dataset for `model.fit`, lists padded to one width."""
    return loader_of(Request(f"tensorflow-{source}", folder, batch, pool)).as_dataset(LABEL, PaddedLayout(width), epochs=None)


def open_epoch(request: Request) -> Epoch:
    def epoch() -> Iterator[Any]:
        loader = loader_of(request)
        if request.contender.startswith("tensorflow"):
            return iter(loader.as_dataset(lists="ragged"))
        if request.contender.startswith("torch"):
            return iter(loader.as_torch(lists="offsets", include_last_offset=True))
        return loader.epoch(0)

    def arrays(batch: Any) -> Mapping[str, NDArray[Any]]:
        if isinstance(batch, tuple):  # the adapters return the column called label apart
            columns, label = batch
            batch = {**columns, LABEL: label}
        if not request.check:
            return {USER: np.asarray(batch[USER])}
        values, lengths = _lists(batch)
        numbers = {name: np.asarray(batch[name]) for name in (USER, ITEM, RATING, AGE, LABEL)}
        return numbers | {VALUES: np.asarray(values), LENGTHS: lengths}

    return epoch, arrays


def _lists(batch: Mapping[str, Any]) -> tuple[Any, NDArray[Any]]:
    if VALUES not in batch:
        return batch[VALUES + "__values"], np.diff(np.asarray(batch[VALUES + "__offsets"]))
    lists = batch[VALUES]
    return lists.values, np.diff(np.asarray(lists.row_splits if hasattr(lists, "row_splits") else lists.offsets))


if __name__ == "__main__":
    request = read_request()
    importlib.import_module(request.contender.partition("-")[0])
    run(request, open_epoch)
