"""kill -9 of the train stage, a real process, at random moments: the next try goes on, and the end is as if nothing had been."""

from __future__ import annotations

import random
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from pipelines.models.families import load_model
from shared.artifacts import FsspecArtifacts
from shared.contracts.stage import Manifest, StageSpec
from shared.domain.ids import attempt_name
from tests.crash.test_etl_kills import write_world
from tests.support.control_planes import SCALE
from tests.unit.pipelines.recommender import spec

KILLS, SEED = max(2, round(10 * SCALE)), 11
EPOCHS = 8
TRAIN = {
    "epochs": EPOCHS,
    "batch_size": 512,
    "validation": 0.1,
    "early_stop": {"metric": "ndcg@10/99", "patience": EPOCHS},
    "checkpoint": {"steps": 40},
}
STARTED, EPOCH = "framework: starting framework=TensorFlow", re.compile(r"epoch: finished epoch=(\d+) of=")


class Stages:
    """Of one platform's folder: attempts, each in a folder of its own, that meet in one store of artifacts."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.data = folder, folder / "data"
        self.store = FsspecArtifacts(str(folder / "artifacts"))
        uris = {
            "interactions": {"uri": str(self.data / "ratings/*.parquet")},
            "items": {"uri": str(self.data / "films.parquet"), "key": "movieId"},
        }
        model = {"params": {"layers": [64, 32], "width": 16}, "train": TRAIN}
        self.recommender = spec(self.data, data=uris, model=model)

    @contextmanager
    def begun(self, stage: Any, run: str, number: int, **inputs: Any) -> Iterator[subprocess.Popen[str]]:
        attempt = attempt_name(run, stage, number)
        told = StageSpec(
            stage=stage,
            run=run,
            attempt=attempt,
            recommender=self.recommender,
            inputs=inputs,
            data_roots=(str(self.data),),
            artifacts=self.store.url,
        )
        path = self.folder / attempt / "spec.json"
        path.parent.mkdir()
        path.write_text(told.model_dump_json(by_alias=True))
        command = [sys.executable, "-m", f"pipelines.stages.{stage}", "--spec", str(path)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
            try:
                yield process
            finally:
                process.kill()

    def whole(self, stage: Any, run: str, number: int = 1, **inputs: Any) -> tuple[Manifest, list[tuple[float, str]]]:
        """What it published, and what it said when."""
        with self.begun(stage, run, number, **inputs) as process:
            assert process.stdout is not None
            said = [(time.monotonic(), line) for line in process.stdout]
            assert process.wait() == 0, "".join(line for _, line in said)
        manifest = self.store.manifest(attempt_name(run, stage, number))
        assert manifest is not None and manifest.failure is None
        return manifest, said

    def killed(self, run: str, number: int, after: int, later: float, stage: str = "train", **inputs: Any) -> tuple[bool, str]:
        """So much later than it said that this epoch ended, 0 for the start. Whether it died of that, and what it had said."""
        said: list[str] = []
        with self.begun(stage, run, number, **inputs) as process:
            assert process.stdout is not None
            for line in process.stdout:
                said.append(line)
                ended = EPOCH.search(line)
                if (STARTED in line and not after) or (ended and int(ended[1]) >= after > 0):
                    break
            try:
                process.wait(later)
            except subprocess.TimeoutExpired:
                process.kill()
            dead = process.wait() == -9
            return dead, "".join([*said, *process.stdout])

    def weights(self, manifest: Manifest, to: Path) -> dict[str, np.ndarray[Any, Any]]:
        to.mkdir(exist_ok=True)
        load_model(lambda name: self.store.fetch(manifest.files[name], to / name))  # whole: it can be served
        with np.load(to / "weights.npz", allow_pickle=False) as stored:
            return {name: stored[name] for name in stored.files}


def numbers(manifest: Manifest) -> dict[str, float]:
    """What doesn't depend on the clock."""
    return {name: value for name, value in manifest.metrics.items() if "seconds" not in name and not name.endswith("_s")}


@pytest.mark.requirement("N-05", "G-09")
def test_a_train_stage_killed_at_random_moments_ends_where_an_undisturbed_one_does(tmp_path: Path) -> None:
    """Ten kills by EYAS_SCALE=1."""
    (tmp_path / "data").mkdir()
    write_world(tmp_path / "data")
    stages, luck = Stages(tmp_path), random.Random(SEED)
    etl, _ = stages.whole("etl", "calm")
    calm, said = stages.whole("train", "calm", etl=etl.files)
    ends = [at for at, line in said if EPOCH.search(line)]
    an_epoch = (ends[-1] - ends[0]) / (len(ends) - 1)
    run, number, died, goings_on, epoch = 0, 1, 0, 0, 0
    while died < KILLS:
        after = 0 if died % 5 == 4 else min(epoch + luck.randint(1, 2), EPOCHS - 1)  # now and then before it has begun
        later = luck.random() * (2 if after else 20) * an_epoch
        dead, text = stages.killed(f"run{run}", number, after, later, etl=etl.files)
        goings_on += "checkpoint: training continued from_attempt=" in text
        died += dead
        epoch = max([epoch, *(int(found) for found in EPOCH.findall(text))])
        number += 1
        if not dead or number > 6:  # it came to its end first; or a run has had its share of blows
            if dead:
                finished(stages, f"run{run}", number, etl, calm)
            run, number, epoch = run + 1, 1, 0
        assert run <= KILLS + 2
    if number > 1:
        finished(stages, f"run{run}", number, etl, calm)
    assert goings_on >= died // 2, f"{goings_on} of {died} tries after a kill went on from a checkpoint"


@pytest.mark.requirement("N-05", "G-09")
def test_a_refit_that_is_killed_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    write_world(tmp_path / "data")
    stages = Stages(tmp_path)
    etl, _ = stages.whole("etl", "calm")
    train, _ = stages.whole("train", "calm", etl=etl.files)
    inputs = {"etl": etl.files, "train": train.files}
    calm, _ = stages.whole("refit", "calm", **inputs)
    dead, _ = stages.killed("run1", 1, 2, 0.0, "refit", **inputs)
    assert dead
    found, said = stages.whole("refit", "run1", 2, **inputs)
    assert any("checkpoint: training continued from_attempt=run1-refit-1 " in line for _, line in said), said
    assert found.facts["losses"] == calm.facts["losses"]
    assert numbers(found) == numbers(calm)
    ours, theirs = (stages.weights(one, stages.folder / f"weights-{one.run}") for one in (found, calm))
    assert all(np.array_equal(ours[name], values) for name, values in theirs.items())


def finished(stages: Stages, run: str, number: int, etl: Manifest, calm: Manifest) -> None:
    found, said = stages.whole("train", run, number, etl=etl.files)
    text = "".join(line for _, line in said)
    assert found.facts["losses"] == calm.facts["losses"], text
    assert numbers(found) == numbers(calm), text
    assert {name: value for name, value in found.facts.items() if name != "resumed"} == calm.facts
    ours, theirs = (stages.weights(one, stages.folder / f"weights-{one.run}") for one in (found, calm))
    assert all(np.array_equal(ours[name], values) for name, values in theirs.items()), text
    live = Path(stages.store.url) / "live"
    assert not [path for path in live.rglob("*") if path.is_file() and path.parent.name.startswith(f"{run}-")], "published, so cleared"
    assert pl.read_parquet(stages.store.fetch(found.files["popularity.parquet"], stages.folder / "popularity")).height
