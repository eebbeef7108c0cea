"""NVTabular session on CPUs: in this process, on several local processes, or on a Dask cluster.

Temporary files (statistics between tasks) are in a folder that ends with the session; none is published or loaded later. On a cluster all
workers must see that folder.
"""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import polars as pl

from shared.domain.errors import Invalid

DASK = "EYAS_DASK"
ROWS = 500_000
"""Maximum rows of a partition."""


@dataclass(frozen=True)
class DaskSession:
    folder: Path
    _numbers: count[int] = field(default_factory=count)

    def new(self, name: str) -> Path:
        """Creates a unique folder: NVTabular names files by columns alone, so operators must not share a folder."""
        path = self.folder / f"{name}-{next(self._numbers)}"
        path.mkdir()
        return path

    def write(self, frame: pl.LazyFrame) -> Path | None:
        """Writes a file for NVTabular; returns None for an empty frame."""
        path = self.new("rows") / "rows.parquet"
        frame.sink_parquet(path, compression="lz4", statistics=False, row_group_size=ROWS)
        return path if pl.scan_parquet(path).select(pl.len()).collect().item() else None

    def dataset(self, path: Path) -> Any:
        """Opens a dataset with a partition per row group."""
        import nvtabular

        return nvtabular.Dataset(str(path), engine="parquet", row_groups_per_part=1, cpu=True)


@contextmanager
def session(parent: Path | None = None) -> Iterator[DaskSession]:
    folder = Path(tempfile.mkdtemp(prefix="nvtabular-", dir=parent)).absolute()
    try:
        with _computing(folder), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # old libraries warn, and cannot be changed here
            yield DaskSession(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _computing(folder: Path) -> Iterator[None]:
    """Opens Dask by `EYAS_DASK`: an address such as tcp://scheduler:8786, or a number of local processes; unset: this process only."""
    where = os.environ.get(DASK, "")
    if not where:
        yield
        return
    from dask.distributed import Client

    options: dict[str, Any] = {"address": where, "timeout": 10}
    if where.isdecimal():
        options = {"n_workers": int(where), "threads_per_worker": 1, "dashboard_address": None, "local_directory": str(folder)}
        options["silence_logs"] = logging.ERROR
    try:
        client = Client(**options, set_as_default=True)
    except OSError as error:
        raise Invalid(f"{DASK} is {where}: no Dask scheduler answers there ({error})") from None
    with client:
        yield
