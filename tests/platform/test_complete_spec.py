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
from tests.servers.platform_process import PlatformProcess, checked, until

SPEC = """
apiVersion: eyas/v1
name: movielens
data:
  interactions: {uri: ratings/*.parquet, also: events}
  items: {uri: movies.parquet, key: movieId}
  users: {uri: users.parquet, key: userId}
  validate: {nulls: {userId: 0}, range: {rating: [0.5, 5]}, drift: {warn: 0.1, stop: 0.3}}
schema: {user: userId, item: movieId, time: timestamp, label: {column: rating, positive: ">= 4"}}
features:
  - categorify: [userId, movieId]
    min_count: 2
  - multi_hot: genres
    separator: "|"
  - cyclic: {of: timestamp, periods: [day, week]}
  - target_encode: {of: movieId, target: label, folds: 5, smoothing: 20}
  - count_encode: userId
  - lag: {of: timestamp, by: userId}
  - cross: [genres, hour]
    buckets: 10000
  - vector: {of: movieId, from: posters.parquet, width: 512}
split: {by: time, test: 7d, refit: true}
evaluate: {users: 20000}
model:
  family: neumf
  framework: tensorflow
  params: {width: 8, layers: [32, 16], negatives: 4, dropout: 0.2}
  train: {epochs: 4, batch_size: auto, mixed_precision: true, compile: true, early_stop: {metric: ndcg@10, patience: 3}}
gates:
  - {metric: hr@10/99, min: 0.10}
  - {metric: ndcg@10, not_worse_than: serving, by: 1%, confidence: 90%, inconclusive: accept}
  - {metric: hr@10, better_than: popularity, inconclusive: accept}
  - {metric: hr@10, slice: user_history<=20, min: 0.05}
  - {parity: 1e-5}
  - {latency_p99: 20s, batch: 500}
serve:
  retrieve: {candidates: 50, fallback: popular}
  filter: [not_seen: 30d, available: true, "age_rating <= user.age"]
  order: {diversity: 0.2, campaigns: campaigns.yaml}
rollout:
  shadow: 5m
  steps: [1%, 5%, 25%, 50%]
  analysis: {goal: hit_rate, window: 30m, max_harm: 2%, attribution: 30m, guardrails: {errors: "< 0.1%", latency_p99: "< 1.2x"}}
retrain:
  schedule: "0 3 * * *"
  timezone: Europe/Berlin
  on: [drift: {psi: 0.2}, kpi: {hit_rate: -10%, season: auto}, new_events: 1000000]
  mode: warm
  cooldown: 6h
resources:
  etl: {engine: polars, memory: 32Gi}
  train: {memory: 64Gi, processes: 1}
"""
WORLD = World.create(300, 120, seed=3)
AGE_RATINGS = {int(item): (0, 6, 12, 18)[place % 4] for place, item in enumerate(WORLD.item_ids)}
PINNED = min(AGE_RATINGS)
CAMPAIGNS = f"- {{name: always, from: 2020-01-01T00:00:00Z, until: 2090-01-01T00:00:00Z, rules: [{{pin: {PINNED}, at: 2}}]}}\n"


def write_data(folder: Path) -> None:
    """Ten weeks of ratings, items, ages of users, and vectors of posters."""
    chance = np.random.default_rng(7)
    write_ratings(WORLD.ratings(12_000, 1_700_000_000, 1_706_000_000, seed=4), folder / "ratings/1.parquet")
    WORLD.write_items(folder / "movies.parquet")
    pl.DataFrame({"userId": WORLD.user_ids, "age": chance.integers(10, 70, len(WORLD.user_ids))}).write_parquet(folder / "users.parquet")
    posters = pl.DataFrame({"movieId": WORLD.item_ids, "vector": chance.normal(size=(len(WORLD.item_ids), 512)).astype(np.float32)})
    posters.write_parquet(folder / "posters.parquet")
    (folder / "campaigns.yaml").write_text(CAMPAIGNS)


@pytest.mark.requirement("C-01", "C-04", "G-04")
@pytest.mark.timeout(900)
def test_a_complete_spec_is_applied_trained_judged_and_served(tmp_path: Path) -> None:
    data = tmp_path / "data"
    write_data(data)
    (tmp_path / "spec.yaml").write_text(SPEC)
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
        assert re.search(r"[\d,]+ rows a step, by rule of ", log)
        assert re.search(r"epoch 1 of 4, .* hr@10 [\d.]+, ndcg@10 [\d.]+", log)
        platform.wait_for_rollout(run["rollout"], "promoted")
        rated = [{"item": item, "attributes": {"age_rating": age}} for item, age in AGE_RATINGS.items()]
        checked(platform.client.put("/v1/items/movielens", json={"items": rated}))
        answer = until("the model answers", lambda: of_model(platform, {"user": 1, "k": 10, "context": {"age": 12}}))
        items = [one["item"] for one in answer["items"]]
        assert len(items) == 10 and items[1] == PINNED
        assert max(AGE_RATINGS[item] for item in items) == 12
        unknown = platform.post("/v1/recommend/movielens", {"user": 999_999, "k": 10, "context": {"age": 99}})
        assert (unknown["fallback"], len(unknown["items"])) == ("unknown user", 10)


def of_model(platform: PlatformProcess, request: dict[str, Any]) -> dict[str, Any] | None:
    found: dict[str, Any] = platform.post("/v1/recommend/movielens", request)
    return found if found["fallback"] is None else None
