"""Specs of the acts, written to var/demo/spec-*.yaml."""

from __future__ import annotations

from pathlib import Path

import yaml

from demo.client import Json
from demo.datasets import HOLDOUT

NAME = "movies"
FALL = 0.3
KPI_SECONDS = 24
FRESH_SECONDS = 20
DRIFT_EVENTS = 5_000
RAILS = {"errors": "< 1%", "latency_p99": "< 5x"}
"""Latencies vary more than on a dedicated server, because the same machine trains."""


def write(path: Path, intro: str, spec: Json) -> str:
    """Writes a spec and returns its text."""
    text = "".join(f"# {line}\n" for line in intro.splitlines()) + yaml.safe_dump(spec, sort_keys=False, default_flow_style=None, width=120)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return text


def learning_from(interactions: Path, items: Path) -> Json:
    """Spec of the acts; only the data differs between acts."""
    return {
        "apiVersion": "eyas/v1",
        "name": NAME,
        "data": {"interactions": {"uri": str(interactions.absolute())}, "items": {"uri": str(items.absolute()), "key": "movieId"}},
        "schema": {"user": "userId", "item": "movieId", "time": "timestamp", "label": {"column": "rating", "positive": ">= 4"}},
        "features": [{"categorify": ["userId", "movieId"]}],
        "split": {"by": "time", "test": f"{HOLDOUT:.0%}"},
        "model": {
            "family": "mf",
            "params": {"loss": "softmax", "width": 32},
            "train": {"seed": 7},
        },
        "gates": [
            {"metric": "hr@10", "better_than": "popularity", "by": "5%"},
            {"metric": "auc", "min": 0.6},
            {"metric": "ndcg@10", "not_worse_than": "serving", "by": "10%"},
            {"parity": 1e-4},
            {"latency_p99": "50ms"},
        ],
        "evaluate": {"users": 1_000},  # enough for the gates, and faster than all users
        "serve": {"filter": [{"available": True}]},
        "rollout": {
            "steps": ["10%", "50%"],
            "analysis": {
                "attribution": "1s",
                "window": "2s",
                "max_harm": "5%",
                "min_users": 50,  # of 122 in a tenth of all users
                "deadline": "3m",
                "every": "1s",
                "guardrails": RAILS,
            },
        },
        "retrain": {
            "on": [
                {"drift": {"min_events": DRIFT_EVENTS, "mode": "full"}},
                {"kpi": {"hit_rate": f"-{FALL:.0%}", "window": f"{KPI_SECONDS}s", "season": "none", "min_answers": 1000}},
            ],
            "cooldown": "1m",
        },
    }


def watching(interactions: Path, items: Path) -> Json:
    """Spec of the drift act: a retraining uses only the newest feedback, because positives from before the shift outweigh newer ones.

    No gate compares with the serving version: feedback holds clicks on items that this version showed, so such a holdout
    favours it. The canary compares the two."""
    spec = learning_from(interactions, items)
    spec["data"]["interactions"] |= {"also": "events", "since": f"{FRESH_SECONDS}s"}
    spec["rollout"]["analysis"]["guardrails"] = RAILS | {"fallback": "off"}  # users without a visit in these seconds are unknown to it
    spec["gates"] = [gate for gate in spec["gates"] if gate.get("not_worse_than") != "serving"]
    return spec
