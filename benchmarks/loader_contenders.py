"""Contenders of the loader benchmark, each in a process of its own, and the rows that they read."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.harness import say, watched
from benchmarks.movielens_rows import write_coded
from benchmarks.peers.loader_run import Request

PEERS = Path(__file__).parent / "peers"
BATCH, POOL = 32_768, 1 << 19
"""Rows of a batch, and rows that are shuffled together, wherever a contender has such an option."""
MERLIN = (
    *("merlin-dataloader==23.8.0", "merlin-core==23.8.0", "dask-cuda==23.8.0", "dask==2023.7.1", "distributed==2023.7.1"),
    *("tensorflow-cpu==2.15.1", "torch==2.13.0", "numpy==1.26.4", "pandas==1.5.3", "pyarrow==20.0.0", "setuptools<81"),
)
"""TensorFlow 2.15 is the last one with the Keras 2 that it needs, NumPy 1 what it was written for."""
ARROW = ("iter_batches", "read_row_group", "dataset.to_batches")
_MERLIN_HOME = Path("var/bench/merlin").absolute()


@dataclass(frozen=True)
class Contender:
    name: str
    command: Callable[[], list[str]]
    differs: str = ""
    """From shuffling whole rows within a pool of 524,288."""
    needs: str = "parquet"
    """The format of its rows: parquet, cache, rows or batches of TFRecord."""
    steady: bool = False
    """Its buffer slides: of a part of an epoch the rate after the first batch counts, else filling the buffer would."""
    quantum: int = 1
    """It reads so many rows at once: a part of an epoch is a multiple of it."""


def eyas(name: str) -> list[str]:
    return [sys.executable, "-m", "benchmarks.loader_eyas", name]


def _peer(name: str, key: str, differs: str = "", **options: Any) -> Contender:
    def command() -> list[str]:
        return [merlin() if key.startswith("merlin") else sys.executable, str(PEERS / "loader_peers.py"), key]

    return Contender(name, command, differs, **options)


_FULL, _ARROW = "all rows are in memory before, and are shuffled", "Arrow, not shuffled"
CONTENDERS: Mapping[str, Contender] = {
    contender.name: contender
    for contender in (
        *(
            Contender(f"eyas: {into}, {source}", partial(eyas, f"{into}-{source}"), needs=source)
            for into in ("numpy", "tensorflow", "torch")
            for source in ("parquet", "cache")
        ),
        Contender("eyas: numpy, cache being written", partial(eyas, "numpy-first")),
        _peer("tensorflow: windowed", "tensorflow-windowed", "TFRecord; a window of that size slides", needs="rows", steady=True),
        _peer("tensorflow: per item", "tensorflow-per-item", "TFRecord; a window slides; lists padded", needs="rows", steady=True),
        _peer("tensorflow: pre-batched", "tensorflow-pre-batched", "TFRecord; whole batches are shuffled, no rows", needs="batches"),
        *(_peer(f"torch: by row, {workers} workers", f"torch-by-row-{workers}", _FULL) for workers in (0, 2)),
        *(
            _peer(f"torch: by batch, {workers} workers", f"torch-by-batch-{workers}", _FULL + "; __getitems__ gathers")
            for workers in (0, 2)
        ),
        _peer("merlin: tensorflow", "merlin-tf", quantum=POOL),
        _peer("merlin: tensorflow, no list", "merlin-tf-flat", "no genres", quantum=POOL),
        _peer("merlin: torch", "merlin-torch", quantum=POOL),
        _peer("merlin: torch, no list", "merlin-torch-flat", "no genres", quantum=POOL),
        *(_peer(f"pyarrow: {name}", f"arrow-{name.rpartition('.')[2]}", _ARROW) for name in ARROW),
        _peer("memcpy", "arrow-memcpy", "copies arrays that are in memory, not shuffled"),
    )
}


def merlin() -> str:
    """Returns the Python of Merlin's environment, made on first use: pip finds torch's build for this CPU, uv the rest."""
    python = _MERLIN_HOME / "bin" / "python"
    if not (_MERLIN_HOME / ".ready").exists():
        say(f"installing {MERLIN[0]} with TensorFlow and torch into {_MERLIN_HOME}")
        uv = shutil.which("uv", path=str(Path(sys.executable).parent)) or "uv"
        torch = [pin for pin in MERLIN if pin.startswith(("torch", "numpy"))]
        subprocess.run([uv, "venv", "--quiet", "--seed", "--clear", "--python", sys.executable, str(_MERLIN_HOME)], check=True)  # noqa: S603
        subprocess.run([str(python), "-m", "pip", "install", "--quiet", *torch], check=True)  # noqa: S603
        subprocess.run([uv, "pip", "install", "--quiet", "--python", str(python), *MERLIN], check=True)  # noqa: S603
        (_MERLIN_HOME / ".ready").touch()
    return str(python)


@dataclass(frozen=True)
class Run:
    rows: int
    seconds: float
    cpu: float
    first: float
    """Seconds to the first batch, which had `first_rows`; CPU until then."""
    first_rows: int
    first_cpu: float
    whole: bool
    imports: float
    """MiB that were resident after the imports."""
    peak: float
    anonymous: float
    """The most MiB without a file behind them, of the samples, without those of the imports."""
    sums: Mapping[str, float]

    def _counted(self, *, steady: bool) -> tuple[int, float, float]:
        """Rows, seconds and CPU. Of a part of an epoch, a steady contender's are those after the first batch."""
        if self.whole or not steady or self.rows == self.first_rows:
            return self.rows, self.seconds, self.cpu
        return self.rows - self.first_rows, self.seconds - self.first, self.cpu - self.first_cpu

    def rate(self, *, steady: bool) -> float:
        """Rows a second."""
        rows, seconds, _ = self._counted(steady=steady)
        return rows / seconds

    def cost(self, *, steady: bool) -> float:
        """Seconds of CPU a million rows."""
        rows, _, cpu = self._counted(steady=steady)
        return 1e6 * cpu / rows

    @property
    def memory(self) -> float:
        """MiB beyond the imports."""
        return self.peak - self.imports


def run(command: Sequence[str], folder: Path, *, pool: int, seconds: float = 0.0, rows: int = 0, check: bool = False) -> Run:
    *program, name = command
    used = watched([*program, *Request(name, folder, BATCH, pool, seconds, rows, check).arguments])
    figures = used.document
    peak, anonymous = max(figures.pop("peak"), used.family), used.anonymous - figures.pop("imports_anon")
    return Run(**figures, peak=peak, anonymous=anonymous)


def prepare(folder: Path, count: int, needs: set[str]) -> Path:
    """Writes the rows as Parquet. Also writes TFRecord files or a cache if `needs` names them."""
    write_coded(folder, count)
    for kind in sorted(needs & {"rows", "batches"}):
        watched([sys.executable, "-m", "benchmarks.loader_records", kind, str(folder), str(count), str(BATCH)])
    if "cache" in needs:
        run(eyas("numpy-fill"), folder, pool=0)
    return folder
