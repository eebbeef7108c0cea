"""A train stage of several processes, as it is launched: what it publishes, and what becomes of it when one of them dies or hangs."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from shared.contracts.stage import Manifest
from tests.crash.test_etl_kills import write_world
from tests.crash.test_train_kills import Stages, numbers
from tests.support.torch_available import torch, torchrec
from tests.unit.pipelines.recommender import spec

torch()

TRAIN = {
    "epochs": 3,
    "batch_size": 1024,
    "validation": 0.1,
    "early_stop": {"metric": "ndcg@10/99", "patience": 3},
    "checkpoint": {"steps": 20},
}
PARAMS = {"layers": [32, 16], "width": 16, "dropout": 0.2}
EPOCH = re.compile(r"epoch: finished epoch=(\d+) of=\d+ .*loss=")


class World(Stages):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        (folder / "data").mkdir()
        write_world(folder / "data")
        self.say(1)
        self.etl, _ = self.whole("etl", "data")

    def say(self, processes: int, params: dict[str, Any] = PARAMS, **train: Any) -> None:
        model = {"framework": "torch", "params": params, "train": TRAIN | train | {"processes": processes}}
        uris = {
            "interactions": {"uri": str(self.data / "ratings/*.parquet")},
            "items": {"uri": str(self.data / "films.parquet"), "key": "movieId"},
        }
        self.recommender = spec(self.data, data=uris, model=model)

    def trained(self, run: str, number: int = 1) -> tuple[Manifest, str]:
        manifest, said = self.whole("train", run, number, etl=self.etl.files)
        return manifest, "".join(line for _, line in said)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return World(tmp_path_factory.mktemp("world"))


@pytest.fixture(scope="module")
def calm(world: World) -> tuple[Manifest, dict[str, Any]]:
    """Two processes that nobody disturbs."""
    world.say(2)
    manifest, _ = world.trained("calm")
    return manifest, world.weights(manifest, world.folder / "weights-calm")


def rank_of(launcher: int, number: int) -> psutil.Process:
    found = [one for one in psutil.Process(launcher).children() if one.environ().get("EYAS_RANK") == str(number)]
    assert len(found) == 1
    return found[0]


def until_an_epoch_ended(process: subprocess.Popen[str]) -> Iterator[str]:
    assert process.stdout is not None
    for line in process.stdout:
        yield line
        if EPOCH.search(line):
            return


@pytest.mark.requirement("G-27", "N-06")
def test_two_processes_publish_what_one_would(world: World, calm: tuple[Manifest, dict[str, Any]]) -> None:
    manifest, weights = calm
    world.say(1)
    one, _ = world.trained("alone")
    assert manifest.facts["processes"]["count"] == 2 and manifest.facts["processes"]["sent_bytes"] > 0
    np.testing.assert_allclose(
        manifest.facts["losses"], one.facts["losses"], atol=1e-4, rtol=0
    )  # of rounding that hundreds of steps carry on
    theirs = world.weights(one, world.folder / "weights-alone")
    assert set(weights) == set(theirs)
    assert {name: one.shape for name, one in weights.items()} == {name: one.shape for name, one in theirs.items()}
    assert set(manifest.files) == set(one.files)


@pytest.mark.requirement("G-27", "G-09")
def test_two_processes_refit_as_one_would(world: World, calm: tuple[Manifest, dict[str, Any]]) -> None:
    found = {}
    for processes in (1, 2):
        world.say(processes)
        found[processes], _ = world.whole("refit", f"refit{processes}", etl=world.etl.files, train=calm[0].files)
    assert found[2].facts["processes"]["count"] == 2
    np.testing.assert_allclose(found[2].facts["losses"], found[1].facts["losses"], atol=1e-4, rtol=0)
    assert found[2].files["train.parquet"] == found[1].files["train.parquet"]
    assert set(found[2].files) == set(found[1].files)


@pytest.mark.requirement("G-27", "N-05")
def test_a_killed_rank_ends_the_stage_and_the_next_try_ends_as_if_nothing_had_been(
    world: World, calm: tuple[Manifest, dict[str, Any]]
) -> None:
    world.say(2)
    run, number = "killed", 1
    with world.begun("train", run, 1, etl=world.etl.files) as process:
        said = [*until_an_epoch_ended(process)]
        rank_of(process.pid, number).send_signal(signal.SIGKILL)
        assert process.stdout is not None
        said += process.stdout
        assert process.wait(60) == 1
    assert (
        said[-1]
        == f"train: failed error=rank {number} of 2 was killed by signal 9 (SIGKILL); the other ranks were stopped attempt={run}-train-1\n"
    )
    assert world.store.manifest(f"{run}-train-1") is None
    found, text = world.trained(run, 2)
    assert f"checkpoint: training continued from_attempt={run}-train-1 " in text
    manifest, weights = calm
    assert found.facts["losses"] == manifest.facts["losses"] and numbers(found) == numbers(manifest)
    ours = world.weights(found, world.folder / f"weights-{run}")
    assert all(np.array_equal(ours[name], one) for name, one in weights.items())


@pytest.mark.requirement("G-24", "N-05")
def test_tables_by_rows_over_two_processes_are_published_whole_after_a_kill_too(world: World) -> None:
    torchrec()
    world.say(1, optimizer="adagrad")
    one, _ = world.trained("whole")
    world.say(2, optimizer="adagrad", shard="row")
    with world.begun("train", "apart", 1, etl=world.etl.files) as process:
        said = [*until_an_epoch_ended(process)]
        rank_of(process.pid, 0).send_signal(signal.SIGKILL)
        assert process.stdout is not None
        said += process.stdout
        assert process.wait(60) == 1
    assert "rank 0 of 2 was killed by signal 9" in said[-1]
    assert any(re.search(r"tables: sharded shard=row mb=\d\.\d of=\d\.\d", line) for line in said)
    found, text = world.trained("apart", 2)
    assert "checkpoint: training continued from_attempt=apart-train-1 " in text
    assert found.facts["processes"]["shard"] == "row"
    np.testing.assert_allclose(found.facts["losses"], one.facts["losses"], atol=1e-4, rtol=0)
    ours, theirs = (world.weights(made, world.folder / f"weights-{made.run}") for made in (found, one))
    for name, whole in theirs.items():
        np.testing.assert_allclose(ours[name], whole, atol=0.02)


@pytest.mark.requirement("G-27")
def test_two_processes_calibrate_given_labels_as_one_would(world: World) -> None:
    """The leading rank scores with the tables of all ranks."""
    torchrec()
    calibrations = []
    for run, processes, more in (("labels", 1, {}), ("labels-apart", 2, {"shard": "row"})):
        world.say(processes, PARAMS | {"negatives": 0, "dropout": 0.0}, optimizer="adagrad", epochs=1, early_stop=None, **more)
        manifest, _ = world.trained(run)
        calibrations.append(manifest.facts["calibration"])
    assert calibrations[0]["slope"] != 1
    assert calibrations[1] == pytest.approx(calibrations[0], rel=0.02, abs=0.02)


@pytest.mark.requirement("G-27")
def test_a_rank_that_hangs_ends_the_stage_in_bounded_time(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    number = 1
    monkeypatch.setenv("EYAS_PATIENCE", "4")
    monkeypatch.setenv("EYAS_RANK_GRACE", "2")
    world.say(2, epochs=50)
    with world.begun("train", "hangs", 1, etl=world.etl.files) as process:
        said = [*until_an_epoch_ended(process)]
        hung = rank_of(process.pid, number)
        hung.send_signal(signal.SIGSTOP)
        assert process.stdout is not None
        said += process.stdout
        assert process.wait(60) == 1
        assert not hung.is_running()
    reason = "stopped responding to the other ranks; the other ranks were stopped"
    assert said[-1] == f"train: failed error=rank {number} of 2 {reason} attempt=hangs-train-1\n"


@pytest.mark.requirement("G-24", "N-05")
def test_cold_rows_in_host_memory_are_placed_for_gpus_and_refused_without(world: World) -> None:
    torchrec()
    world.say(2, optimizer="adagrad", shard="row", cold_rows="host")
    with world.begun("train", "cold", 1, etl=world.etl.files) as process:
        assert process.stdout is not None
        output = process.stdout.read()
        assert process.wait(120) == 2
    assert "model.train.cold_rows: needs a GPU for each process" in output
    code = (
        "import torch, torchrec\n"
        "from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder as Sharder\n"
        "from torchrec.distributed.sharding_plan import construct_module_sharding_plan as plan\n"
        "from pipelines.models.neural.sharded_tables import UVM_CACHING, _parameter_sharding\n"
        "config = torchrec.EmbeddingBagConfig(name='t0', embedding_dim=16, num_embeddings=1000, feature_names=['f0'])\n"
        "bags = torchrec.EmbeddingBagCollection(tables=[config], device=torch.device('meta'))\n"
        "for shard in ('row', 'column', 'table'):\n"
        "    by = {'t0': _parameter_sharding(shard, 0, 16, 2, UVM_CACHING)}\n"
        "    sharding = plan(bags, by, sharder=Sharder(), local_size=2, world_size=2, device_type='cuda')['t0']\n"
        "    print(sharding.sharding_type, sharding.compute_kernel)\n"
    )
    plans = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=True)
    kernel = "fused_uvm_caching"
    assert plans.stdout.splitlines() == [f"row_wise {kernel}", f"column_wise {kernel}", f"table_wise {kernel}"]
