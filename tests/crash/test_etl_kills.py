"""kill -9 of the ETL stage, a real process, at ten moments of its work: what is published is whole, once, and as if nothing had been."""

from __future__ import annotations

import hashlib
import itertools
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from shared.artifacts.store import FsspecArtifacts
from shared.contracts.stage import Manifest, StageSpec
from tests.unit.pipelines.recommender import films, spec

ROWS, FILES, KILLS, SEED = 60_000, 4, 10, 7
STARTS = ("", "validation: rows checked", "feature: fitted", "rows: split")
"""What the stage says as a phase begins: start and validation, features, splitting and writing, publishing."""


def write_world(folder: Path) -> None:
    random_rows = np.random.default_rng(SEED)
    user, item = random_rows.integers(1, 900, ROWS), random_rows.integers(1, 301, ROWS)
    rating, at = random_rows.choice([1.0, 2.0, 4.0, 5.0], ROWS), 1.6e9 + np.sort(random_rows.integers(0, 90 * 86_400, ROWS))
    frame = pl.DataFrame({"userId": user, "movieId": item, "rating": rating, "at": at})
    frame = frame.with_columns(userId=pl.when(pl.int_range(pl.len()) % 100 == 3).then(None).otherwise("userId"))
    (folder / "ratings").mkdir()
    for n, rows in enumerate(frame.iter_slices(ROWS // FILES)):
        rows.write_parquet(folder / "ratings" / f"part-{n}.parquet")
    films(300).write_parquet(folder / "films.parquet")


class Stage:
    """Attempts of one run's etl, as a platform would start them: each has a folder of its own, or goes on in that of one that died."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder, self.name, self.data = folder, name, folder / "data"
        self.store = FsspecArtifacts(str(folder / name / "artifacts"))

    def spec(self, attempt: str) -> Path:
        uris = {
            "interactions": {"uri": str(self.data / "ratings/*.parquet")},
            "items": {"uri": str(self.data / "films.parquet"), "key": "movieId"},
        }
        recommender = spec(self.data, data=uris, split={"by": "leave_last_out"})
        stage = StageSpec(
            stage="etl", run="run", attempt=attempt, recommender=recommender, data_roots=(str(self.data),), artifacts=self.store.url
        )
        path = self.folder / self.name / attempt / "spec.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(stage.model_dump_json(by_alias=True))
        return path

    @contextmanager
    def begun(self, attempt: str) -> Iterator[subprocess.Popen[str]]:
        command = [sys.executable, "-m", "pipelines.stages.etl", "--spec", str(self.spec(attempt))]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
            try:
                yield process
            finally:
                process.kill()

    def undisturbed(self, attempt: str) -> list[tuple[float, str]]:
        """What it says, and when."""
        began, said = time.monotonic(), []
        with self.begun(attempt) as process:
            assert process.stdout is not None
            said = [(time.monotonic() - began, line) for line in process.stdout]
            assert process.wait() == 0, "".join(line for _, line in said)
        return [(0.0, ""), *said, (time.monotonic() - began, "the end")]

    def killed(self, attempt: str, phase: str, later: float) -> bool:
        """Whether it died of it: killed so much later than it said that the phase begins."""
        with self.begun(attempt) as process:
            assert process.stdout is not None
            for line in process.stdout if phase else ():
                if phase in line:
                    break
            try:
                process.wait(later)
            except subprocess.TimeoutExpired:
                process.kill()
            return process.wait() == -9

    def manifests(self) -> dict[str, Manifest]:
        names = [path.stem for path in (Path(self.store.url) / "manifests").glob("*.json")]
        return {name: found for name in names if (found := self.store.manifest(name))}

    def half_written(self) -> list[str]:
        """Whatever lies under a name that a reader would open, and isn't what its name says."""
        blobs = [path for path in (Path(self.store.url) / "blobs").glob("*/*") if not path.name.endswith(".part")]
        return [path.name for path in blobs if hashlib.sha256(path.read_bytes()).hexdigest() != path.name]


def lengths(said: list[tuple[float, str]]) -> dict[str, float]:
    """Of each phase, from what it said in an undisturbed run."""
    begins = [next(at for at, line in said if start in line) for start in STARTS]
    return {start: until - since for start, (since, until) in zip(STARTS, itertools.pairwise([*begins, said[-1][0]]), strict=True)}


@pytest.mark.requirement("G-05")
def test_etl_killed_at_ten_moments_publishes_one_whole_output_equal_to_an_undisturbed_one(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    write_world(tmp_path / "data")
    calm, luck = Stage(tmp_path, "calm"), random.Random(SEED)
    phases = lengths(calm.undisturbed("run-etl-1"))
    (expected,) = calm.manifests().values()
    homes, attempt, died = [Stage(tmp_path, "killed-0")], 1, 0
    while died < KILLS:
        stage, phase = homes[-1], STARTS[died % len(STARTS)]
        died += stage.killed(f"run-etl-{attempt}", phase, luck.random() * phases[phase])
        assert stage.half_written() == []
        published = stage.manifests().values()
        assert all(one.files == expected.files for one in published), "a manifest that is there is whole"
        if published:  # it came to its end before the blow, or the blow before its last word: what comes next begins anew
            homes.append(Stage(tmp_path, f"killed-{len(homes)}"))
            attempt = 1
        else:
            attempt += died % 2  # by turns the next try has a new name, or goes on in the folder of the one that died
        assert len(homes) <= KILLS, f"most kills came too late: {died} of them in {phases}"
    for number, stage in enumerate(homes):
        if not stage.manifests():
            stage.undisturbed(f"run-etl-{attempt if number == len(homes) - 1 else 1}")
        (found,) = stage.manifests().values()
        assert found.files == expected.files, "byte for byte"
        assert (found.facts, found.failure) == (expected.facts, None)
        assert counts(found) == counts(expected)
        assert all(stage.store.holds(file) for file in found.files.values())
        assert stage.half_written() == []


def counts(manifest: Manifest) -> dict[str, float]:
    return {name: value for name, value in manifest.metrics.items() if "seconds" not in name}
