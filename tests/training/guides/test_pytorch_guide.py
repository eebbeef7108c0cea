"""The script of docs/how-to/pytorch.md, as it stands there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.torch_available import torch as installed

installed()

ROOT = Path(__file__).parents[3]
GUIDE = ROOT / "docs/how-to/pytorch.md"


def _write(path: Path, rows: int, seed: int) -> None:
    """Who likes what follows from the genres."""
    random = np.random.default_rng(seed)
    genres = [random.choice(20, random.integers(0, 4), replace=False).tolist() for _ in range(rows)]
    liked = np.array([bool(set(one) & {1, 2, 3, 4, 5, 6}) for one in genres], np.float32)
    columns = {
        "user": random.integers(0, 1000, rows, dtype=np.int32),
        "item": random.integers(0, 500, rows, dtype=np.int32),
        "genres": pa.array(genres, pa.list_(pa.int32())),
        "age": random.random(rows, np.float32),
        "liked": liked,
    }
    pq.write_table(pa.table(columns), path, row_group_size=2000)


@pytest.mark.requirement("P-01", "P-02", "P-03", "T-10")
def test_the_guides_script_trains_and_says_how_fast(tmp_path: Path) -> None:
    _write(tmp_path / "train.parquet", 20_000, 0)
    _write(tmp_path / "validation.parquet", 5_000, 1)
    script = GUIDE.read_text().split("```python\n")[1].split("```")[0]
    run = subprocess.run(
        [sys.executable, "-W", "error", "-c", script],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    lines = run.stdout.splitlines()
    said = re.compile(
        r"epoch (\d), (trained|validated): +([\d,]+) rows in (\d+) steps, loss ([\d.]+), [\d,]+ rows/s, \d+% of the time waiting"
    )
    found = [one.groups() for line in lines if (one := said.match(line))]
    assert [one[:4] for one in found] == [
        (str(epoch), *counts) for epoch in range(3) for counts in [("trained", "20,000", "5"), ("validated", "5,000", "2")]
    ]
    assert re.fullmatch(r"60,000 rows in 3 epochs of [\d.]+ s, [\d,]+ rows/s, \d+% of the time waiting for batches", lines[-1])
    assert float(found[-1][4]) < 0.6 * float(found[1][4])
