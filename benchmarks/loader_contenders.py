"""Who takes part in the loader benchmark: what starts each, and what it does differently."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

PEERS = Path(__file__).parent / "peers"
POOL = 1 << 19
"""Rows that are shuffled together, wherever a contender can be told."""
MERLIN = (
    *("merlin-dataloader==23.8.0", "merlin-core==23.8.0", "dask-cuda==23.8.0", "dask==2023.7.1", "distributed==2023.7.1"),
    *("tensorflow-cpu==2.15.1", "torch==2.13.0", "numpy==1.26.4", "pandas==1.5.3", "pyarrow==20.0.0", "setuptools<81"),
)
"""TensorFlow 2.15 is the last one with the Keras 2 that it needs, NumPy 1 what it was written for."""
_MERLIN_HOME = Path("var/bench/merlin").absolute()


@dataclass(frozen=True)
class Contender:
    name: str
    command: Callable[[], list[str]]
    differs: str = ""
    """From shuffling whole rows within a pool of 524,288."""
    needs: str = "parquet"
    """What its rows are in: parquet, cache, rows or batches of TFRecord."""
    steady: bool = False
    """Its buffer slides: of a part of an epoch the rate after the first batch counts, else filling it would."""
    quantum: int = 1
    """It reads so many rows at once: a part of an epoch is so many, or twice as many and so on."""


def contenders() -> tuple[Contender, ...]:
    full, arrow = "all rows are in memory before, and are shuffled", "Arrow, not shuffled"
    return (
        *(
            Contender(f"eyas: {into}, {source}", _ours(f"{into}-{source}"), needs=source)
            for into in ("numpy", "tensorflow", "torch")
            for source in ("parquet", "cache")
        ),
        Contender("eyas: numpy, cache being written", _ours("numpy-first")),
        Contender("tensorflow: windowed", _peer("loader_tf.py", "windowed"), "TFRecord; a window of that size slides", "rows", steady=True),
        Contender(
            "tensorflow: per item", _peer("loader_tf.py", "per-item"), "TFRecord; a window slides; lists padded", "rows", steady=True
        ),
        Contender(
            "tensorflow: pre-batched", _peer("loader_tf.py", "pre-batched"), "TFRecord; whole batches are shuffled, no rows", "batches"
        ),
        Contender("torch: by row, 0 workers", _peer("loader_torch.py", "by-row-0"), full),
        Contender("torch: by row, 2 workers", _peer("loader_torch.py", "by-row-2"), full),
        Contender("torch: by batch, 0 workers", _peer("loader_torch.py", "by-batch-0"), full + "; __getitems__ gathers"),
        Contender("torch: by batch, 2 workers", _peer("loader_torch.py", "by-batch-2"), full + "; __getitems__ gathers"),
        Contender("merlin: tensorflow", _merlin("tf"), quantum=POOL),
        Contender("merlin: tensorflow, no list", _merlin("tf-flat"), "no genres", quantum=POOL),
        Contender("merlin: torch", _merlin("torch"), quantum=POOL),
        Contender("merlin: torch, no list", _merlin("torch-flat"), "no genres", quantum=POOL),
        Contender("pyarrow: iter_batches", _peer("loader_pyarrow.py", "iter_batches"), arrow),
        Contender("pyarrow: read_row_group", _peer("loader_pyarrow.py", "read_row_group"), arrow),
        Contender("pyarrow: dataset.to_batches", _peer("loader_pyarrow.py", "to_batches"), arrow),
        Contender("memcpy", _peer("loader_pyarrow.py", "memcpy"), "copies arrays that are in memory, not shuffled"),
    )


def _ours(what: str) -> Callable[[], list[str]]:
    return lambda: [sys.executable, "-m", "benchmarks.loader_eyas", what]


def _peer(script: str, what: str) -> Callable[[], list[str]]:
    return lambda: [sys.executable, str(PEERS / script), what]


def _merlin(what: str) -> Callable[[], list[str]]:
    return lambda: [merlin(), str(PEERS / "loader_merlin.py"), what]


def merlin() -> str:
    """Its environment, made on first use: pip finds torch's build for this CPU, uv the rest."""
    python = _MERLIN_HOME / "bin" / "python"
    if not (_MERLIN_HOME / ".ready").exists():
        sys.stderr.write(f"installing {MERLIN[0]} with TensorFlow and torch into {_MERLIN_HOME}\n")
        uv = shutil.which("uv", path=str(Path(sys.executable).parent)) or "uv"
        torch = [one for one in MERLIN if one.startswith(("torch", "numpy"))]
        subprocess.run([uv, "venv", "--quiet", "--seed", "--clear", "--python", sys.executable, str(_MERLIN_HOME)], check=True)  # noqa: S603
        subprocess.run([str(python), "-m", "pip", "install", "--quiet", *torch], check=True)  # noqa: S603
        subprocess.run([uv, "pip", "install", "--quiet", "--python", str(python), *MERLIN], check=True)  # noqa: S603
        (_MERLIN_HOME / ".ready").touch()
    return str(python)
