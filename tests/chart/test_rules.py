"""The rules for Prometheus: of metrics that the platform exports, each alert with a page to turn to; tried by a real promtool."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml
from prometheus_client import Counter, Gauge, Histogram
from prometheus_client.metrics import MetricWrapperBase
from typer.main import get_command

from helm.values import ControlObjectives, Objectives
from services.api.request_metrics import OUTCOMES
from services.cli.main import app
from shared.contracts.events import NO_SCORES
from shared.contracts.online import AWAY
from shared.domain import rollout, run
from shared.telemetry import metrics
from tests.chart.helm import CHART, template
from tests.servers.alerting import faster
from tests.servers.prometheus_process import program
from tests.support.alert_rules import RULES, groups, rules

GUIDE = CHART.parents[1] / "docs/how-to/operate.md"
CASES = sorted(Path(__file__).parent.glob("rules*_test.yaml"))
SUFFIXES: dict[type[MetricWrapperBase], tuple[str, ...]] = {Counter: ("_total",), Gauge: ("",), Histogram: ("_bucket", "_sum", "_count")}


def exported() -> dict[str, frozenset[str]]:
    """Every series' name, with its labels."""
    found = {}
    for one in vars(metrics).values():
        if isinstance(one, MetricWrapperBase):
            for suffix in SUFFIXES[type(one)]:
                found[one._name + suffix] = frozenset((*one._labelnames, *(("le",) if suffix == "_bucket" else ())))
    return found


RECORDED = frozenset({"recommender", "slice", "slo"})
"""Labels of recorded series."""
SLOS = frozenset(re.findall(r'"slo", "(\w+)"', rules("record")["eyas:slo_budget:ratio"]["expr"]))
EXPRESSIONS = {name: one["expr"] for kind in ("record", "alert") for name, one in rules(kind).items()}


def unknown(expression: str, before: Sequence[str]) -> list[str]:
    """What it asks for and nobody says: series that are neither exported nor recorded before it, and labels that they don't have."""
    known = exported()
    named = set(re.findall(r"eyas[a-z0-9_:]*", expression))
    found = sorted(named - {*known, *before})
    for series, labels in re.findall(r"(eyas[a-z0-9_:]*)\{([^}]*)\}", expression):
        found += {re.split("[=!]", condition)[0].strip() for condition in labels.split(",")} - known.get(series, RECORDED)
    allowed = frozenset[str]().union(*(known.get(series, RECORDED) for series in named))
    for by in re.findall(r"by \(([^)]*)\)", expression):
        found += {label.strip() for label in by.split(",")} - allowed
    return found


def test_every_series_of_a_rule_is_exported_or_recorded_before(subtests: pytest.Subtests) -> None:
    """With the labels that are asked for."""
    recorded = list(rules("record"))
    for name, expression in EXPRESSIONS.items():
        with subtests.test(name):
            assert unknown(expression, recorded[: recorded.index(name)] if name in recorded else recorded) == []


def test_a_misspelt_name_is_found(subtests: pytest.Subtests) -> None:
    for expression, found in (
        ("avg_over_time(eyas_hit_rat[1h])", ["eyas_hit_rat"]),
        ("rate(eyas_recommend_requests[5m])", ["eyas_recommend_requests"]),
        ('rate(eyas_recommend_requests_total{outcom="error"}[5m])', ["outcom"]),
        ("sum by (recomender) (eyas_hit_rate)", ["recomender"]),
        ("eyas:hit_rate:avg2h > 0", ["eyas:hit_rate:avg2h"]),
        ('eyas:slo_burn:rate5m{sla="control_slow"}', ["sla"]),
        ('rate(eyas_api_requests_total{outcom!="refused"}[5m])', ["outcom"]),
        ("eyas_hit_rate > 0", []),
    ):
        with subtests.test(expression):
            assert unknown(expression, list(rules("record"))) == found


def test_values_of_labels_are_those_that_the_platform_says() -> None:
    said = {value for one in EXPRESSIONS.values() for found in re.findall(r'=~?"([^"]*)"', one) for value in found.split("|")}
    states = set(run.MACHINE.states) | set(rollout.MACHINE.states)
    bounds = {str(bound) for histogram in (metrics.REQUEST_SECONDS, metrics.API_SECONDS) for bound in histogram._upper_bounds}
    assert said <= states | bounds | set(OUTCOMES) | SLOS | {NO_SCORES, AWAY, "waiting", "control", "gateway"}
    assert {"failed", "rolled_back", NO_SCORES, *SLOS} <= said


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


def pages() -> dict[str, str]:
    """What the guide says of each alert."""
    found = re.split(r"^### (Eyas\w+)\n", GUIDE.read_text(), flags=re.MULTILINE)
    return dict(zip(found[1::2], found[2::2], strict=True))


def test_a_page_says_what_it_means_what_to_look_at_and_what_to_do(subtests: pytest.Subtests) -> None:
    texts = pages()
    for name in rules("alert"):
        with subtests.test(name):
            said = re.findall(r"^- \*\*(It means|Look|Do)\*\*", texts[name], re.MULTILINE)
            assert said == ["It means", "Look", "Do"]


def words(line: str) -> list[str]:
    """Of a command, as far as it names one: up to what stands for something, and to options."""
    return list(takewhile(re.compile(r"[a-z]+$").match, line.split()))


def lacking(line: str) -> str | None:
    """The first word or option of a command that `eyas` doesn't know."""
    here: Any = get_command(app)
    for word in words(line):
        if not hasattr(here, "commands"):
            break
        if word not in here.commands:
            return word
        here = here.commands[word]
    known = {option for parameter in here.params for option in parameter.opts}
    return next((one for one in re.findall(r"--[a-z-]+", line) if one not in known), None)


def test_every_command_of_the_guide_is_one() -> None:
    found = re.findall(r"`eyas ([^`]*)`", GUIDE.read_text())
    assert len(found) > 30
    assert {line: fault for line in found if (fault := lacking(line))} == {}
    assert lacking("rollout statsu NAME") == "statsu"
    assert lacking("kpis NAME --serie") == "--serie"


def test_names_stand_once() -> None:
    for kind in ("record", "alert"):
        assert len(rules(kind)) == sum(kind in one for group in groups() for one in group["rules"])


def test_rules_are_tested_in_the_order_of_their_groups() -> None:
    """Without an order promtool evaluates groups in an order of chance, and an alert misses what is recorded for it."""
    for path in CASES:
        assert yaml.safe_load(path.read_text())["group_eval_order"] == [group["name"] for group in groups()]


def said_by(*arguments: str) -> str:
    ended = subprocess.run([program("prometheus", "promtool"), *arguments], capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


@pytest.mark.requirement("C-06")
def test_prometheus_understands_the_rules_and_alerts_when_it_should(tmp_path: Path) -> None:
    assert "SUCCESS" in said_by("check", "rules", str(RULES))
    for path in (RULES, *CASES):
        shutil.copy(path, tmp_path)
    assert "SUCCESS" in said_by("test", "rules", *(str(tmp_path / one.name) for one in CASES))


def read(expression: str) -> set[str]:
    """The exported series that it rests on, through what is recorded."""
    found = set(re.findall(r"eyas[a-z0-9_:]*", expression))
    recorded = rules("record")
    return {one for one in found if one not in recorded}.union(*(read(recorded[one]["expr"]) for one in found if one in recorded))


def shown(cases: Iterable[Mapping[str, Any]]) -> dict[str, set[bool]]:
    """By alert, whether it is shown to come and not to come: silence counts where series that it reads are there."""
    found: dict[str, set[bool]] = {}
    alerts = rules("alert")
    for case in cases:
        given = {one["series"].partition("{")[0] for one in case["input_series"]}
        for one in case.get("alert_rule_test", ()):
            if given & read(alerts[one["alertname"]]["expr"]):
                found.setdefault(one["alertname"], set()).add(bool(one["exp_alerts"]))
    return found


def test_every_alert_is_shown_to_come_and_not_to_come() -> None:
    cases = [case for path in CASES for case in yaml.safe_load(path.read_text())["tests"]]
    assert {name: both for name, both in shown(cases).items() if both != {True, False}} == {}
    assert shown(cases).keys() == rules("alert").keys()


def test_silence_over_other_series_shows_nothing() -> None:
    silent = {"alertname": "EyasAnswersFail", "exp_alerts": []}
    assert shown([{"input_series": [{"series": "eyas_drifting{}"}], "alert_rule_test": [silent]}]) == {}
    answered = {"series": 'eyas_recommend_requests_total{outcome="error"}'}
    assert shown([{"input_series": [answered], "alert_rule_test": [silent]}]) == {"EyasAnswersFail": {False}}


def test_a_faster_world_has_the_same_rules_over_shorter_times() -> None:
    """Of what the live test does with them: no expression is another one."""
    text = RULES.read_text()
    quick, windows = faster(text, 3600), re.compile(r"\[[^\]]+\]|offset \w+|(?:for|interval): \w+")
    assert windows.sub("", quick) == windows.sub("", text)
    assert len(windows.findall(quick)) == len(windows.findall(text)) > 50
    (fell,) = (one for group in yaml.safe_load(quick)["groups"] for one in group["rules"] if one.get("alert") == "EyasHitRateFell")
    assert fell["for"] == "500ms"
    assert "(eyas:hit_rate:avg1h offset 168000ms" in quick and "or eyas:hit_rate:avg1h offset 24000ms" in quick
    assert "eyas:hit_rate_answers:sum[1000ms]" in fell["expr"]
    assert faster("rate(a[5m]) > sum_over_time(b[1d:5m]) # in 5m", 60) == "rate(a[5000ms]) > sum_over_time(b[1440000ms:5000ms]) # in 5m"


def test_the_chart_has_them_where_they_are_wanted_and_else_not() -> None:
    assert not [one for one in template() if one["kind"] == "PrometheusRule"]
    wanted = {"monitoring": {"rules": {"enabled": True, "labels": {"release": "prometheus"}}}}
    (found,) = [one for one in template(**wanted) if one["kind"] == "PrometheusRule"]
    assert found["spec"] == {"groups": groups()}
    assert found["metadata"]["labels"]["release"] == "prometheus"


def test_an_installation_may_work_long_windows_more_often_or_less() -> None:
    given = {"monitoring": {"rules": {"enabled": True, "slowInterval": "30s"}}}
    (found,) = [one for one in template(**given) if one["kind"] == "PrometheusRule"]
    said = {group["name"]: group.get("interval") for group in found["spec"]["groups"]}
    assert {name: interval for name, interval in said.items() if interval} == {
        "eyas-hours": "1h",
        "eyas-budgets": "30s",
        "eyas-objectives": "30s",
    }
    assert {group.get("interval") for group in groups()} == {None, "2m", "1h"}


def test_an_installation_may_say_other_objectives() -> None:
    """The objectives of recommenders and of the control plane stay apart, though the bound of each is the other's default."""
    objectives = {"errors": 0.01, "slow": 0.001, "slowerThan": "1.0", "control": {"errors": 0.02, "slow": 0.05, "slowerThan": "0.25"}}
    (rule,) = [
        manifest
        for manifest in template(**{"monitoring.rules.enabled": True, "monitoring.rules.objectives": objectives})
        if manifest["kind"] == "PrometheusRule"
    ]
    text = RULES.read_text()
    for former, new in (
        ('vector(0.001), "slo", "recommend_errors"', 'vector(0.01), "slo", "recommend_errors"'),
        ('vector(0.01), "slo", "recommend_slow"', 'vector(0.001), "slo", "recommend_slow"'),
        ('vector(0.001), "slo", "control_errors"', 'vector(0.02), "slo", "control_errors"'),
        ('vector(0.01), "slo", "control_slow"', 'vector(0.05), "slo", "control_slow"'),
        ('eyas_recommend_seconds_bucket{le="0.25"}', 'eyas_recommend_seconds_bucket{le="one second"}'),
        ('eyas_api_seconds_bucket{le="1.0"}', 'eyas_api_seconds_bucket{le="0.25"}'),
        ("one second", "1.0"),
    ):
        assert text.count(former) == 1
        text = text.replace(former, new)
    assert rule["spec"] == yaml.safe_load(text)
    for model, metric in ((Objectives, metrics.REQUEST_SECONDS), (ControlObjectives, metrics.API_SECONDS)):
        bounds = get_args(model.model_fields["slower_than"].annotation)
        assert bounds == tuple(str(float(bound)) for bound in metric._upper_bounds[:-1])
