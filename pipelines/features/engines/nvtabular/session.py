"""A session in which NVTabular computes on CPUs: in this process, in several processes of this machine, or on a Dask cluster.

Temporary files (statistics between tasks) are in a folder that ends with the session; none is published or loaded later. On a cluster all
workers must see that folder: it is made in `EYAS_DASK_FOLDER`. Tasks of a worker that dies are computed again by another worker.
"""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import polars as pl

from shared.domain.errors import Invalid, Unavailable
from shared.secret_file import read_secret_file

DASK = "EYAS_DASK"
DASK_FOLDER = "EYAS_DASK_FOLDER"
DASK_TLS = "EYAS_DASK_TLS"
ROWS = 500_000
"""Maximum rows of a partition."""
WORKER_WAIT = 60
"""Seconds that a session waits for the first worker of a Dask cluster."""
_STALE = 7 * 24 * 3600


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
    if DASK_FOLDER in os.environ:
        parent = Path(os.environ[DASK_FOLDER])
        parent.mkdir(parents=True, exist_ok=True)
        _remove_stale(parent)
    folder = Path(tempfile.mkdtemp(prefix="nvtabular-", dir=parent)).absolute()
    try:
        with _computing(folder), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # old libraries warn, and cannot be changed here
            yield DaskSession(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _remove_stale(parent: Path) -> None:
    """Removes the folders of killed stages from the shared folder."""
    for folder in parent.glob("nvtabular-*"):
        with suppress(OSError):
            if folder.stat().st_mtime < time.time() - _STALE:
                shutil.rmtree(folder)


@contextmanager
def _computing(folder: Path) -> Iterator[None]:
    """Opens Dask by `EYAS_DASK`: an address such as tls://scheduler:8786, or a number of local processes; unset: this process only."""
    where = os.environ.get(DASK, "")
    if not where:
        yield
        return
    from dask.distributed import CancelledError, Client, KilledWorker, comm

    options: dict[str, Any] = {"address": where, "timeout": 10}
    if where.isdecimal():
        options = {"n_workers": int(where), "threads_per_worker": 1, "dashboard_address": None, "local_directory": str(folder)}
        options["silence_logs"] = logging.ERROR
    elif where.startswith("tls:"):
        options["security"] = _security(where)
    try:
        client = Client(**options, set_as_default=True)
    except OSError as error:
        raise Unavailable(f"{DASK} is {where}: no Dask scheduler answers there ({error})") from None
    client.run = partial(client.run, on_error="ignore")  # NVTabular clears caches by it: of a worker that dies, nothing is left to clear
    with client:
        try:
            if not where.isdecimal():
                _check_workers(client, where, folder)
            yield
        except Exception as error:
            if client.status == "running" and not isinstance(error, CancelledError | comm.CommClosedError | KilledWorker):
                raise
            reason = f"{type(error).__name__}: {error}"
            raise Unavailable(f"{DASK} is {where}: the Dask cluster lost its scheduler or too many workers ({reason}); retry") from error


def _security(where: str) -> Any:
    """Mutual TLS by the files that cert-manager and Kubernetes write."""
    from dask.distributed import Security

    if DASK_TLS not in os.environ:
        raise Invalid(f"{DASK} is {where}: set {DASK_TLS} to the folder with ca.crt, tls.crt and tls.key")
    ca, certificate, key = (str(Path(os.environ[DASK_TLS], name)) for name in ("ca.crt", "tls.crt", "tls.key"))
    read_secret_file(Path(key))
    return Security(require_encryption=True, tls_ca_file=ca, tls_client_cert=certificate, tls_client_key=key)


def _check_workers(client: Any, where: str, folder: Path) -> None:
    """Raises if no worker comes, or if a worker does not share the session's folder."""
    try:
        client.wait_for_workers(1, timeout=WORKER_WAIT)
    except TimeoutError:
        raise Unavailable(f"{DASK} is {where}: its scheduler has no worker after {WORKER_WAIT} seconds; start workers") from None
    for worker, writes in client.run(os.access, str(folder), os.W_OK).items():
        if not writes:
            raise Invalid(f"{DASK} is {where}: the worker {worker} cannot write to {folder}; set {DASK_FOLDER} to a folder that all share")
