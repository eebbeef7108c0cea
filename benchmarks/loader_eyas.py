"""Our loader as a contender of the loader benchmark: `python -m benchmarks.loader_eyas numpy|tensorflow|torch-parquet|cache ...`

`numpy-fill` is an epoch that writes the cache from which the others read, `numpy-first` one that writes a cache of its own.
`numpy-parquet@256` has a budget of so many MiB; a pool of 0 is as large as memory allows. Lists come as each framework's people want
them: ragged in TensorFlow, values and offsets in torch.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.peers.loader_run import AGE, ITEM, LABEL, LENGTHS, RATING, USER, VALUES, Asked, asked, run
from pipelines.loaders.adapters.layout import PaddedLayout
from pipelines.loaders.cache import Cache
from pipelines.loaders.loader import Loader, open_loader

NUMBERS = (USER, ITEM, RATING, AGE, LABEL)
MEMORY = 512
CACHE = 64 << 30


def opened(said: Asked) -> Loader:
    what, _, memory = said.what.partition("@")
    cache = None if what.endswith("parquet") else Cache(said.folder / ("first" if what.endswith("first") else "cache"), CACHE)
    pool = said.pool or None
    return open_loader(said.files("*.parquet"), batch_size=said.batch, pool=pool, memory=int(memory or MEMORY) << 20, cache=cache)


def fed(folder: Path, batch: int, pool: int, source: str, width: int) -> Any:
    """A dataset without an end for `model.fit`, lists padded to one width."""
    said = Asked(f"tensorflow-{source}", folder, batch, pool, 0.0, 0, check=False, held={})
    return opened(said).as_dataset(LABEL, PaddedLayout(width), epochs=None)


def epoch(said: Asked) -> Iterator[Any]:
    loader = opened(said)
    if said.what.startswith("tensorflow"):
        return iter(loader.as_dataset(lists="ragged"))
    if said.what.startswith("torch"):
        return iter(loader.as_torch(lists="offsets", include_last_offset=True))
    return loader.epoch(0)


def arrays(batch: Any, *, check: bool) -> Mapping[str, NDArray[Any]]:
    """The doors give the column called label by itself."""
    if isinstance(batch, tuple):
        columns, label = batch
        batch = {**columns, LABEL: label}
    if not check:
        return {USER: np.asarray(batch[USER])}
    values, lengths = _lists(batch)
    return {name: np.asarray(batch[name]) for name in NUMBERS} | {VALUES: np.asarray(values), LENGTHS: lengths}


def _lists(batch: Mapping[str, Any]) -> tuple[Any, NDArray[Any]]:
    if VALUES not in batch:
        return batch[VALUES + "__values"], np.diff(np.asarray(batch[VALUES + "__offsets"]))
    lists = batch[VALUES]
    return lists.values, np.diff(np.asarray(lists.row_splits if hasattr(lists, "row_splits") else lists.offsets))


def main() -> None:
    framework = sys.argv[1].partition("-")[0]
    importlib.import_module(framework)
    said = asked()
    run(said, lambda: epoch(said), lambda batch: arrays(batch, check=said.check))


if __name__ == "__main__":
    main()
