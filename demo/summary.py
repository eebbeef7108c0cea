"""Summary of the demo: var/demo/summary.json and a table."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from demo.client import Json


@dataclass
class Act:
    """Result of an act; the field names are the keys of the summary."""

    act: str
    outcome: str
    version: int | None
    run: str
    metrics: dict[str, float] = field(default_factory=dict)
    gates: list[Json] = field(default_factory=list)
    steps: list[Json] = field(default_factory=list)
    trigger: str | None = None
    """Reason of a retraining that the platform started."""

    @classmethod
    def of(cls, act: str, outcome: str, run: Json, rollout: Json | None) -> Act:
        gates = [{name: gate[name] for name in ("gate", "verdict", "reason")} for gate in run["gates"]]
        steps = [_step(report) for report in rollout["reports"]] if rollout else []
        return cls(act, outcome, run["version"], run["id"], dict(run["metrics"]), gates, steps)


@dataclass(frozen=True)
class HitRates:
    """Hit rates counted by the simulator around the shift of preferences."""

    before_drift: float | None = None
    after_drift: float | None = None
    recovered: float | None = None


def document(acts: Sequence[Act], ok: bool, seconds: float, failed: int, rates: HitRates, serving: Json | None) -> dict[str, Any]:
    """Content of summary.json."""
    return {
        "ok": ok,
        "seconds": round(seconds, 1),
        "failed_requests": failed,
        "acts": [{name: value for name, value in vars(act).items() if name != "trigger" or value} for act in acts],
        "hit_rate": vars(rates),
        "triton": triton(serving),
    }


def triton(serving: Json | None) -> dict[str, Any]:
    """Version, model index and successful requests by version of the model server, summed over scrapes."""
    if serving is None:
        return {"server_version": None, "models": [], "requests_by_version": {}}
    successes = {f"{version}": count for counts in serving["successes"].values() for version, count in sorted(counts.items())}
    return {"server_version": serving["server"]["version"], "models": serving["server"]["models"], "requests_by_version": successes}


def write(path: Path, content: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    part.write_text(json.dumps(content, indent=1) + "\n")
    part.replace(path)


def show(console: Console, acts: Sequence[Act], rates: HitRates, failed: int) -> None:
    table = Table(title="Acts of the demo", title_justify="left", show_lines=True, expand=False)
    for name in ("act", "outcome", "version", "deciding reason"):
        table.add_column(name, overflow="fold")
    for act in acts:
        table.add_row(act.act, act.outcome, str(act.version or "none"), Text(_decided(act)))
    console.print(table)
    shift = f"{_percent(rates.before_drift)} before the drift, {_percent(rates.after_drift)} after, {_percent(rates.recovered)} recovered"
    console.print(Text(f"hit rate, counted by the simulator: {shift}; failed requests: {failed}"))


def _decided(act: Act) -> str:
    refused = [f"{gate['gate']}: {gate['reason']}" for gate in act.gates if gate["verdict"] != "pass"]
    if refused:
        return "\n".join(refused)
    if act.steps:
        return f"at {act.steps[-1]['weight']:.0%}: {act.steps[-1]['reason']}"
    return "\n".join(gate["reason"] for gate in act.gates[:1])


def _step(report: Json) -> Json:
    return {
        "weight": report["weight"],
        "impressions": {name: report[name]["answers"] for name in ("stable", "candidate")},
        "hits": {name: report[name]["hits"] for name in ("stable", "candidate")},
        "verdict": report["verdict"],
        "reason": report["reason"],
    }


def _percent(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.0%}"
