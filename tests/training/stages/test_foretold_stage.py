"""Evaluate as a process, with the log of a version that guesses: what a model that has learned would have earned in its place."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest

from services.gateway.exploration import Propensities, drawn
from shared.contracts.plans import run_plan
from shared.contracts.spec import RecommenderSpec
from shared.contracts.stage import BROKEN, MISSING, Files, LoggedAnswers, Manifest
from shared.domain.gate import Verdict, judge
from tests.support.stage_runner import ITEMS, ROWS, USERS, StageRunner

K, RATE, AMONG, ANSWERS = 5, 0.6, 75, 12_000
LIKED, OTHERS = 0.2, 0.02
SINCE = datetime.fromtimestamp(1.6e9 + ROWS * 60.0, UTC)


def guessed(folder: Path, runner: StageRunner) -> tuple[Files, float]:
    """A day of answers in an order of chance, and the hit rate of the best ones."""
    random = np.random.default_rng(4)
    shown, done = [], []
    for n in range(ANSWERS):
        user, at = int(random.integers(USERS)), int(SINCE.timestamp() * 1e6) + n * 1_000_000
        line = np.random.default_rng(user).permutation(ITEMS)
        items, propensities = line[:K].copy(), Propensities.equal(K, AMONG, RATE)
        draw = drawn(propensities, float(random.random()), RATE)
        if draw is not None:
            items[draw[0]] = line[K + draw[1]]
            propensities = propensities.after(draw[0])
        liked = random.random(K) < np.where(items % 4 == user % 4, LIKED, OTHERS)
        own = {"request_id": f"q{n}", "user": user, "at": at}
        route = {"version": 1, "variant": "stable", "generation": 1, "step": -1, "fallback": None, "slices": []}
        shown.append(own | route | {"items": items.tolist(), "propensities": list(propensities.shown), "bucket": None, "score": None})
        more = {"id": None, "kind": "click", "value": None, "revenue": None, "positive": True}
        done += [own | more | {"seq": K * n + int(place), "item": int(items[place])} for place in np.flatnonzero(liked)]
    files: Files = {}
    for name, rows in (("impressions", shown), ("interactions", done)):
        path = folder / f"{name}.ndjson"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        files[f"{name}/{SINCE.date()}.ndjson"] = runner.store.put(path)
    return files, 1 - (1 - LIKED) ** K


@pytest.fixture(scope="module")
def runner(tmp_path_factory: pytest.TempPathFactory) -> StageRunner:
    return StageRunner(tmp_path_factory.mktemp("platform"))


@pytest.mark.requirement("G-10")
def test_a_candidate_is_let_through_by_what_it_would_earn(runner: StageRunner, tmp_path: Path) -> None:
    gates = [{"off_policy": name, "better_than": "serving", "by": "20%"} for name in ("ips", "snips", "dr")]
    gates += [{"metric": "hr@10", "slice": "heavy_users", "better_than": "popularity", "min_users": 30}]
    document = runner.recommender | {
        "gates": gates,
        "serve": {"filter": [{"available": True}], "order": {"explore": {"rate": RATE, "among": AMONG}}},
        "rollout": {"analysis": {"attribution": "1m"}},
    }
    done: dict[str, Manifest] = {}
    files, best = guessed(tmp_path, runner)
    asked = LoggedAnswers(version=1, since=SINCE - timedelta(days=3), until=SINCE + timedelta(days=1))
    for name in ("etl", "train", "evaluate"):
        inputs = {stage: manifest.files for stage, manifest in done.items()}
        more = {"answers": asked} if name == "evaluate" else {}
        process, attempt = runner.stage(name, "told", inputs | ({"answers": files} if more else {}), recommender=document, **more)
        assert process.returncode == 0, process.stdout + process.stderr
        found = runner.store.manifest(attempt)
        assert found is not None and found.failure is None
        done[name] = found
    told = done["evaluate"]
    assert (told.facts.get(MISSING, {}), told.facts.get(BROKEN, {})) == ({}, {})
    assert told.facts["online"]["answers"] == ANSWERS
    for name in ("snips", "dr"):
        value, error = (told.metrics[f"candidate.hit_rate.{name}{more}"] for more in ("", ".se"))
        assert 0.75 * best < value + 2 * error and value - 2 * error < 1.1 * best
        assert value > 1.5 * told.metrics[f"serving.hit_rate.{name}"]
    spec = RecommenderSpec.model_validate(document)
    results = [judge(gate, told.metrics, serving=True, silence=told.silence()) for gate in run_plan(spec).gates if gate.stage == "evaluate"]
    assert {one.verdict for one in results} == {Verdict.PASS}, results
