"""The rules for Prometheus: of metrics that the platform exports, each alert with a page to turn to; tried by a real promtool."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import Counter, Gauge, Histogram
from prometheus_client.metrics import MetricWrapperBase

from shared.contracts.events import NO_SCORES
from shared.contracts.online import AWAY
from shared.domain import rollout, run
from shared.telemetry import metrics
from tests.chart.helm import CHART, template
from tests.daemons import program

RULES = CHART / "files/prometheus-rules.yaml"
GUIDE = CHART.parents[1] / "docs/how-to/operate.md"
CASES = Path(__file__).parent / "rules_test.yaml"
SUFFIXES: dict[type[MetricWrapperBase], tuple[str, ...]] = {Counter: ("_total",), Gauge: ("",), Histogram: ("_bucket", "_sum", "_count")}


def groups() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = yaml.safe_load(RULES.read_text())["groups"]
    return found


def rules(kind: str) -> dict[str, dict[str, Any]]:
    return {one[kind]: one for group in groups() for one in group["rules"] if kind in one}


def exported() -> dict[str, frozenset[str]]:
    """Every series' name, with its labels."""
    found = {}
    for one in vars(metrics).values():
        if isinstance(one, MetricWrapperBase):
            for suffix in SUFFIXES[type(one)]:
                found[one._name + suffix] = frozenset((*one._labelnames, *(("le",) if suffix == "_bucket" else ())))
    return found


EXPRESSIONS = {name: one["expr"] for kind in ("record", "alert") for name, one in rules(kind).items()}


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_every_series_of_a_rule_is_exported_or_recorded_before(name: str) -> None:
    """With the labels that are asked for."""
    expression, known, recorded = EXPRESSIONS[name], exported(), list(rules("record"))
    before = recorded[: recorded.index(name)] if name in recorded else recorded
    named = set(re.findall(r"eyas[a-z0-9_:]*", expression))
    assert named
    assert named <= {*known, *before}
    for series, labels in re.findall(r"(eyas[a-z0-9_]*)\{([^}]*)\}", expression):
        assert {one.partition("=")[0].strip() for one in labels.split(",")} <= known[series]
    here = frozenset[str]().union(*(known.get(one, frozenset({"recommender", "slice"})) for one in named))
    for by in re.findall(r"by \(([^)]*)\)", expression):
        assert {one.strip() for one in by.split(",")} <= here


def test_values_of_labels_are_those_that_the_platform_says() -> None:
    said = {value for one in EXPRESSIONS.values() for value in re.findall(r'="([^"]*)"', one)}
    states = set(run.MACHINE.states) | set(rollout.MACHINE.states)
    assert said <= states | {NO_SCORES, AWAY, "error", "waiting"}
    assert {"failed", "rolled_back", NO_SCORES} <= said


def test_every_alert_says_how_bad_it_is_and_where_its_page_is() -> None:
    anchors = {line[4:].strip().lower() for line in GUIDE.read_text().splitlines() if line.startswith("### ")}
    alerts = rules("alert")
    assert len(alerts) > 15
    for name, one in alerts.items():
        assert one["labels"].keys() == {"severity"}
        assert one["labels"]["severity"] in ("info", "warning", "critical")
        assert one["annotations"].keys() == {"summary", "runbook"}
        assert one["annotations"]["runbook"] == f"docs/how-to/operate.md#{name.lower()}"
        assert name.lower() in anchors
    assert {one for one in anchors if one.startswith("eyas")} == {name.lower() for name in alerts}, "a page without an alert"


def test_names_stand_once() -> None:
    for kind in ("record", "alert"):
        assert len(rules(kind)) == sum(kind in one for group in groups() for one in group["rules"])


def said_by(*arguments: str) -> str:
    ended = subprocess.run([program("prometheus", "promtool"), *arguments], capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


@pytest.mark.requirement("C-06")
def test_prometheus_understands_the_rules_and_alerts_when_it_should(tmp_path: Path) -> None:
    assert "SUCCESS" in said_by("check", "rules", str(RULES))
    for path in (RULES, CASES):
        shutil.copy(path, tmp_path)
    assert "SUCCESS" in said_by("test", "rules", str(tmp_path / CASES.name))


def test_the_chart_has_them_where_they_are_wanted_and_else_not() -> None:
    assert not [one for one in template() if one["kind"] == "PrometheusRule"]
    wanted = {"monitoring": {"rules": {"enabled": True, "labels": {"release": "prometheus"}}}}
    (found,) = [one for one in template(**wanted) if one["kind"] == "PrometheusRule"]
    assert found["spec"] == {"groups": groups()}
    assert found["metadata"]["labels"]["release"] == "prometheus"
