"""var/demo/summary.json has the shape that the design promises."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rich.console import Console

from demo.summary import Act, HitRates, document, show, write

RUN: dict[str, Any] = {
    "id": "r1",
    "version": 2,
    "metrics": {"candidate.hr@10": 0.13, "train.seconds": 8.0},
    "gates": [{"gate": "hr@10 better than popularity", "verdict": "pass", "reason": "hr@10 is 0.13, popularity's is 0.05", "more": 1}],
}
SIDE = {"users": 100, "answers": 110, "hits": 70, "mean": 0.64}
REPORT = {"step": 0, "weight": 0.1, "since": None, "stable": SIDE, "candidate": {**SIDE, "hits": 80}, "lift": 0.1, "lower": 0, "upper": 1}
ROLLOUT: dict[str, Any] = {"reports": [{**REPORT, "verdict": "pass", "reason": "no evidence of harm"}]}
SERVING: dict[str, Any] = {
    "server": {"version": "2.51.0", "models": [{"name": "movies", "version": "2", "state": "READY"}], "fault": None},
    "routes": {},
    "successes": {"movies": {"1": 10, "2": 20}},
}


def test_the_summary_has_the_documented_shape(tmp_path: Path) -> None:
    act = Act.of("second version", "promoted", RUN, ROLLOUT)
    found = document([act], True, 12.34, 0, HitRates(0.7, 0.4, 0.8), SERVING)
    write(tmp_path / "demo" / "summary.json", found)
    assert json.loads((tmp_path / "demo" / "summary.json").read_text()) == {
        "ok": True,
        "seconds": 12.3,
        "failed_requests": 0,
        "acts": [
            {
                "act": "second version",
                "outcome": "promoted",
                "version": 2,
                "run": "r1",
                "metrics": {"candidate.hr@10": 0.13, "train.seconds": 8.0},
                "gates": [{"gate": "hr@10 better than popularity", "verdict": "pass", "reason": "hr@10 is 0.13, popularity's is 0.05"}],
                "steps": [
                    {
                        "weight": 0.1,
                        "impressions": {"stable": 110, "candidate": 110},
                        "hits": {"stable": 70, "candidate": 80},
                        "verdict": "pass",
                        "reason": "no evidence of harm",
                    }
                ],
            }
        ],
        "hit_rate": {"before_drift": 0.7, "after_drift": 0.4, "recovered": 0.8},
        "triton": {
            "server_version": "2.51.0",
            "models": [{"name": "movies", "version": "2", "state": "READY"}],
            "requests_by_version": {"1": 10, "2": 20},
        },
    }


def test_the_drift_act_says_what_triggered_it() -> None:
    act = Act.of("drift", "retrained", RUN, ROLLOUT)
    act.trigger = "hit rate fell"
    assert document([act], True, 1, 0, HitRates(), None)["acts"][0]["trigger"] == "hit rate fell"


def test_a_demo_that_never_reached_triton_still_has_the_shape() -> None:
    found = document([], False, 1, 3, HitRates(), None)
    assert found["triton"] == {"server_version": None, "models": [], "requests_by_version": {}}
    assert found["hit_rate"] == {"before_drift": None, "after_drift": None, "recovered": None}


def test_the_table_says_which_gate_refused() -> None:
    refused = {**RUN, "version": None, "gates": [{"gate": "auc at least 0.6", "verdict": "fail", "reason": "auc is 0.41 < 0.6"}]}
    console = Console(width=120, record=True, quiet=False, file=Path("/dev/null").open("w"))  # noqa: SIM115
    with console.file:
        show(console, [Act.of("mislabelled model", "rejected", refused, None)], HitRates(0.7, 0.4, 0.8), 0)
        text = console.export_text()
    assert "auc at least 0.6: auc is 0.41 < 0.6" in text
    assert "70% before the drift, 40% after, 80% recovered; failed requests: 0" in text
