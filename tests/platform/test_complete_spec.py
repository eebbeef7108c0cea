"""A spec that says nearly everything, from `eyas apply` to an answer of `recommend`, on an embedded platform."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from pipelines.data.synthetic import World, write_ratings
from tests.servers.platform_process import PlatformProcess, until
from tests.support.complete_spec import COMPLETE

REPLACEMENTS = {
    "s3://lake/": "",
    "params: {width: 64, layers: [256, 128, 64],": "params: {width: 8, layers: [32, 16],",  # bfloat16 is slow on most CPUs
    "epochs: 20": "epochs: 4",
    "min: 0.60": "min: 0.10",
    "better_than: popularity}": "better_than: popularity, inconclusive: accept}",
    "user_history<=5, min: 0.40": "user_history<=20, min: 0.05",
    "latency_p99: 20ms": "latency_p99: 20s",
    "candidates: 500": "candidates: 50",
    "engine: nvtabular, gpu: 1,": "engine: polars,",
    "train: {gpu: 1,": "train: {",
}
"""What differs on this machine, with small data."""
WORLD = World.create(300, 120, seed=3)
AGE_RATINGS = {int(item): (0, 6, 12, 18)[place % 4] for place, item in enumerate(WORLD.item_ids)}
PINNED = min(AGE_RATINGS)
CAMPAIGNS = f"- {{name: always, from: 2020-01-01T00:00:00Z, until: 2090-01-01T00:00:00Z, rules: [{{pin: {PINNED}, at: 2}}]}}\n"


def write_data(folder: Path) -> None:
    """Writes ratings of ten weeks, the items, the ages of the users, and a vector for each poster."""
    chance = np.random.default_rng(7)
    write_ratings(WORLD.ratings(12_000, 1_700_000_000, 1_706_000_000, seed=4), folder / "ratings/1.parquet")
    WORLD.write_items(folder / "movies.parquet")
    ages = pl.DataFrame({"movieId": list(AGE_RATINGS), "age_rating": list(AGE_RATINGS.values())})
    pl.read_parquet(folder / "movies.parquet").join(ages, on="movieId").write_parquet(folder / "movies.parquet")
    pl.DataFrame({"userId": WORLD.user_ids, "age": chance.integers(10, 70, len(WORLD.user_ids))}).write_parquet(folder / "users.parquet")
    posters = pl.DataFrame({"movieId": WORLD.item_ids, "vector": chance.normal(size=(len(WORLD.item_ids), 512)).astype(np.float32)})
    posters.write_parquet(folder / "posters.parquet")
    (folder / "campaigns.yaml").write_text(CAMPAIGNS)


@pytest.mark.requirement("C-01", "C-04", "G-04")
@pytest.mark.timeout(900)
def test_a_complete_spec_is_applied_trained_judged_and_served(tmp_path: Path) -> None:
    data = tmp_path / "data"
    write_data(data)
    spec = COMPLETE
    for text, replacement in REPLACEMENTS.items():
        assert text in spec
        spec = spec.replace(text, replacement)
    (tmp_path / "spec.yaml").write_text(spec)
    with PlatformProcess(tmp_path / "home", data) as platform:
        command = [sys.executable, "-m", "services.cli.main", "apply", str(tmp_path / "spec.yaml")]
        access = {"EYAS_URL": str(platform.client.base_url), "EYAS_TOKEN_FILE": str(platform.home / "token")}
        applied = subprocess.run(command, check=False, capture_output=True, text=True, env=os.environ | access)
        assert applied.returncode == 0, applied.stdout + applied.stderr
        stored = platform.get("/v1/recommenders/movielens")["spec"]["serve"]["order"]
        assert stored["campaigns_from"]["sha256"] == hashlib.sha256((data / "campaigns.yaml").read_bytes()).hexdigest()
        (run,) = platform.get("/v1/recommenders/movielens/runs")["items"]
        run = platform.wait_for_run(run["id"], "registered", seconds=600)
        gates = {gate["gate"]: gate["verdict"] for gate in run["gates"]}
        assert gates["hr@10{user_history<=20} at least 0.05"] == "pass"
        log = platform.get(f"/v1/runs/{run['id']}/logs", stage="train")["text"]
        assert re.search(r"batch size: chosen rows=\d+ reason=by rule of ", log)
        assert re.search(r"epoch: finished epoch=1 of=4 .* hr@10=[\d.]+ ndcg@10=[\d.]+", log)
        platform.wait_for_rollout(run["rollout"], "promoted")
        assert platform.get(f"/v1/items/movielens/{PINNED}")["attributes"]["age_rating"] == AGE_RATINGS[PINNED], "a column of the table"
        answer = until("the model answers", lambda: of_model(platform, {"user": 1, "k": 10, "context": {"age": 12}}))
        items = [item["item"] for item in answer["items"]]
        assert len(items) == 10 and items[1] == PINNED
        assert max(AGE_RATINGS[item] for item in items) == 12
        unknown = platform.post("/v1/recommend/movielens", {"user": 999_999, "k": 10, "context": {"age": 99}})
        assert (unknown["fallback"], len(unknown["items"])) == ("unknown user", 10)


def of_model(platform: PlatformProcess, request: dict[str, Any]) -> dict[str, Any] | None:
    found: dict[str, Any] = platform.post("/v1/recommend/movielens", request)
    return found if found["fallback"] is None else None
