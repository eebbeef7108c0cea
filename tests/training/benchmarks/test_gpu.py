"""The benchmark of the device: its model, its batches, and that it says on what it ran."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.torch_available import torch as installed

torch = installed()

from benchmarks import gpu, gpu_sides  # noqa: E402

ROOT = Path(__file__).parents[3]


def test_the_model_is_the_published_one() -> None:
    architecture = gpu_sides.architecture_of(gpu_sides.USERS, gpu_sides.ITEMS)
    assert [(table.cardinality, table.width) for table in architecture.tables] == [(138_493, 192), (26_744, 192)]
    shapes = architecture.shapes
    assert [shapes[f"hidden_{at}/kernel"] for at in range(3)] == [(256, 256), (256, 128), (128, 64)]
    assert shapes["score/kernel"] == (128, 1)


def test_its_batches_are_likes_by_a_power_law_and_four_negatives_each(monkeypatch: pytest.MonkeyPatch) -> None:
    batches: list[Any] = []
    monkeypatch.setattr(gpu_sides, "ResidentStep", lambda *_: batches.append)  # no training: Keras may run on TensorFlow in this process
    side = gpu_sides.Ours(None, gpu_sides.random_likes(torch.device("cpu"), 0.001), 1_000, 1, {})  # type: ignore[arg-type]
    for step, _ in zip(side.epoch(0), range(100), strict=False):
        step()
    users, labels = zip(*((batch.columns["user"], batch.labels) for batch in batches), strict=True)
    assert torch.cat(labels).mean() == pytest.approx(0.2, abs=0.005)
    counts = np.sort(np.bincount(torch.cat(users), minlength=138))[::-1]
    assert counts[:14].sum() > 0.4 * counts.sum() and counts.min() > 0


def test_it_says_on_which_device_it_ran_and_whose_the_published_figures_are(tmp_path: Path) -> None:
    options = ["--scale", "0.0001", "--steps", "3", "--runs", "1", "--cases", "float16, scale 128"]
    command = [sys.executable, "-m", "benchmarks.gpu", *options]
    hidden = os.environ | {"PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": ""}
    ran = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path, env=hidden)
    assert ran.returncode == 0, ran.stderr
    assert "device: cpu" in ran.stdout and ran.stdout.count("published of one V100, not ours") == 3
    document = json.loads((tmp_path / "var/bench/gpu.json").read_text())
    assert (document["device"], document["scale"], document["batch"]) == ("cpu", 0.0001, 105)
    rows = {row["metric"]: row for row in document["rows"] if row["case"] == "ml-20m's shape"}
    assert set(rows) == {"training", "scoring", "bytes of embeddings"} and all(row["value"] > 0 for row in rows.values())


@pytest.mark.requirement("N-09")
def test_the_protocol_is_of_ml_20ms_shape() -> None:
    assert (gpu_sides.USERS, gpu_sides.ITEMS, gpu_sides.LIKES) == gpu_sides.size(1) == (138_493, 26_744, 20_000_263)
    counts = gpu_sides.counts(*gpu_sides.size(1))
    assert counts.sum() == 20_000_263 and counts.min() >= 20 and counts.max() <= 26_744 // 3
    assert counts[:13_849].sum() > 0.3 * counts.sum()
    assert (gpu.BATCH, gpu_sides.EACH, gpu_sides.RATE, gpu_sides.DROPOUT, gpu_sides.AGAINST) == (1_048_576, 4, 0.0045, 0.5, 100)
    sizes = {name: tuple(one.shape) for name, one in gpu_sides.NeuMF(7, 5).state_dict().items()}
    assert sum(np.prod(one) for one in sizes.values()) == gpu_sides.architecture_of(7, 5).parameters


@pytest.mark.requirement("N-03", "N-09")
def test_who_is_asked_never_met_what_the_held_out_item_stands_among() -> None:
    likes = gpu_sides.likes_by_taste(torch.device("cpu"), 0.0005)
    users, items, count = gpu_sides.size(0.0005)
    liked = set(zip(likes.user.tolist(), likes.item.tolist(), strict=True))
    assert len(liked) == len(likes.user) == count - users and likes.against.shape == (users, 100)
    for user, (item_out, against) in enumerate(zip(likes.held_out.tolist(), likes.against.tolist(), strict=True)):
        assert len({item_out, *against}) == 101 and all((user, item) not in liked for item in (item_out, *against))
    popular = np.sort(np.bincount(likes.item, minlength=items))[::-1]
    assert popular[: items // 10].sum() > 0.2 * popular.sum()
    cases = likes.cases
    assert cases["user"].tolist()[100:103] == [0, 1, 1] and cases["item"][101] == likes.held_out[1]


def test_a_plain_loop_takes_four_negatives_for_each_like_and_whole_steps() -> None:
    likes = gpu_sides.likes_by_taste(torch.device("cpu"), 0.0005)
    side, batches = gpu_sides.Plain(likes, 1_000, 1, {}), []
    side._step = lambda user, item, labels: batches.append((user, labels))  # type: ignore[method-assign, assignment, func-returns-value]
    for step in side.epoch(0):
        step()
    assert len(batches) == len(likes.user) * 5 // 1_000 and {len(users) for users, _ in batches} == {1_000}
    assert torch.cat([one for _, one in batches]).mean() == pytest.approx(0.2, abs=0.01)


@pytest.mark.requirement("N-09")
def test_both_sides_are_given_turns_and_a_ratio_is_said(tmp_path: Path) -> None:
    cases = ["float32", "float32, compiled, graphs"]
    command = [
        sys.executable,
        "-m",
        "benchmarks.gpu",
        "--protocol",
        "--scale",
        "0.0001",
        "--epochs",
        "2",
        "--batch",
        "2048",
        "--cases",
        *cases,
    ]
    hidden = os.environ | {"PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
    ran = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path, env=hidden)
    assert ran.returncode == 0, ran.stderr
    document = json.loads((tmp_path / "var/bench/gpu-protocol.json").read_text())
    assert set(document["not_measured"]) == {"float32, compiled, graphs", "utilisation"}
    assert "float32, compiled, graphs: not measured: 'graphs' needs CUDA" in ran.stdout
    rows = {(row["contender"], row["metric"]): row for row in document["rows"]}
    ours, plain = (rows[one, "training"] for one in ("eyas on torch", "torch: plain loop"))
    assert ours["ratio_to"] == {"torch: plain loop": pytest.approx(ours["value"] / plain["value"])}
    assert rows["eyas on torch", "operators"]["note"].startswith("0 numbers asked of the device, 0 brought there")
    for one in ("eyas on torch", "torch: plain loop"):
        assert 0 < rows[one, "best hr@10/100"]["value"] <= 1 and rows[one, "evaluation"]["value"] > 0


def test_a_device_is_looked_at_while_it_works() -> None:
    looked = threading.Event()

    def sample() -> list[float]:
        looked.set()
        return [70.0]

    with gpu.sampled(sample, every=0.001) as busy:
        assert looked.wait(60)
    assert busy and set(busy) == {70.0}


def test_equal_scores_share_the_middle_rank_so_nothing_is_found_by_chance() -> None:
    assert gpu.hit_rate(torch.zeros(101 * 5), 101) == 0
    found = torch.zeros(101 * 4)
    found[:202:101] = 1
    assert gpu.hit_rate(found, 101) == 0.5
