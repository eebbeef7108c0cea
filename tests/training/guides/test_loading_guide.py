"""The scripts of docs/how-to/loading.md as they stand there, and as their diffs change them: before and after, a model learns the same."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipelines.loaders.adapters.layout import Dense, PaddedLayout, RaggedLayout
from pipelines.loaders.adapters.opened import opened
from pipelines.loaders.loader import Loader, open_loader
from shared.domain.errors import Invalid
from tests.support.torch_available import torch

ROOT = Path(__file__).parents[3]
TEXT = (ROOT / "docs/how-to/loading.md").read_text()


def section(title: str) -> str:
    return TEXT.split(f"## {title}\n")[1].split("\n## ")[0]


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


def changed(script: str, diff: str) -> str:
    lines = diff.splitlines()
    before = "\n".join(line[1:] for line in lines if line[:1] in (" ", "-"))
    after = "\n".join(line[1:] for line in lines if line[:1] in (" ", "+"))
    assert script.count(before) == 1, "the diff isn't one of this script"
    return script.replace(before, after)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Who likes what follows from the genres."""
    found = tmp_path_factory.mktemp("rows")
    for name, rows in (("train", 20_000), ("validation", 5_000)):
        random = np.random.default_rng(rows)
        genres = [random.choice(np.arange(1, 20), random.integers(1, 5), replace=False).tolist() for _ in range(rows)]
        columns = {
            "user": random.integers(0, 1000, rows, dtype=np.int32),
            "item": random.integers(0, 500, rows, dtype=np.int32),
            "age": random.random(rows, np.float32),
            "genres": pa.array(genres, pa.list_(pa.int32())),
            "label": np.array([np.mean(np.array(one) < 8) > 0.4 for one in genres], np.float32),
        }
        pq.write_table(pa.table(columns), found / f"{name}.parquet", row_group_size=2_000)
    return found


def run(script: str, folder: Path, backend: str = "tensorflow") -> str:
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "KERAS_BACKEND": backend, "TF_CPP_MIN_LOG_LEVEL": "2"},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.mark.requirement("T-03", "T-10")
@pytest.mark.parametrize("backend", ["tensorflow", "torch"])
def test_the_first_script_trains_and_validates_on_either_backend(backend: str, folder: Path) -> None:
    if backend == "torch":
        torch()
    out = run(blocks(TEXT, "python")[0], folder, backend)
    found = [float(one) for one in re.findall(r"val_accuracy: ([\d.]+)", out)]
    assert len(found) == 3
    assert found[-1] > 0.85


@pytest.mark.requirement("L-06")
@pytest.mark.parametrize("title", ["From tf.data", "From torch's DataLoader"])
def test_a_script_learns_the_same_before_and_after_its_diff(title: str, folder: Path) -> None:
    if "torch" in title:
        torch()
    before = after = blocks(section(title), "python")[0]
    for diff in blocks(section(title), "diff"):
        after = changed(after, diff)
    assert "open_loader" in after
    found = [float(re.findall(r"accuracy ([\d.]+)$", run(script, folder), re.MULTILINE)[-1]) for script in (before, after)]
    assert min(found) > 0.85
    assert abs(found[0] - found[1]) < 0.05


@pytest.mark.requirement("N-04", "L-06")
def test_negatives_are_a_stage_as_the_guide_says(folder: Path) -> None:
    look = """
from collections import Counter
whole, known = pl.read_parquet("train.parquet"), set(rows.select("user", "item").rows())
judged = Counter(whole.filter(pl.col("label") == 0).select("user", "item").rows())
drawn = Counter((int(u), int(i)) for b in train.epoch(0) for u, i, y in zip(b["user"], b["item"], b["label"]) if y == 0) - judged
print(drawn.total() - 4 * len(rows), len(known & set(drawn)))
"""
    assert run(blocks(section("Negatives, and other stages"), "python")[0] + look, folder).split() == ["0", "0"]


def test_errors_are_worded_as_the_guide_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    users = pa.array([1, 2, None], pa.int64())
    table = pa.table({"user": users, "age": [0.5] * 3, "city": ["a"] * 3, "genres": [[23], [1] * 9, []], "label": [1, 0, 1]})
    pq.write_table(table, "rows.parquet")

    def loader(*columns: str, **settings: Any) -> Loader:
        return open_loader("rows.parquet", columns, **settings)

    def damaged() -> None:
        whole, begin = Path("rows.parquet").read_bytes(), pq.read_metadata("rows.parquet").row_group(0).column(1).data_page_offset
        Path("rows.parquet").write_bytes(whole[:begin] + b"?" * 20 + whole[begin + 20 :])
        list(loader("age", "genres").epoch(0))

    def cut() -> None:
        Path("rows.parquet").write_bytes(Path("rows.parquet").read_bytes()[:-20])
        loader("age")

    def batches(lists: Any) -> None:
        list(opened(loader("genres"), None, lists, RaggedLayout()).batches(0, 1))

    cases: list[Callable[[], Any]] = [
        lambda: loader("agee"),
        lambda: open_loader("rows.parquet"),
        lambda: list(loader("user").epoch(0)),
        lambda: open_loader("other*.parquet"),
        lambda: loader("age", memory=10).plan,
        lambda: batches(PaddedLayout(8)),
        lambda: batches(Dense(20)),
        lambda: loader("age", "label").as_dataset("lable"),
        damaged,
        cut,
    ]
    said = []
    for case in cases:
        with pytest.raises(Invalid) as raised:
            case()
        said.append(str(raised.value).replace(f"{tmp_path}/", ""))
    told = re.findall(r"^\| `(.*?)` \|", section("What errors mean"), re.MULTILINE)
    assert [one for one in told if not any(one in text for text in said)] == told[-3:]  # proven where they are raised
