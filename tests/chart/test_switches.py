"""What is switched on by values, and isn't there otherwise."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.chart.cases import EVERYTHING, jobs_settings, kinds, pods, stage
from tests.chart.helm import CHART, run, template, values
from tests.servers.prometheus_process import program

SWITCHED = (
    ("PodDisruptionBudget", {"disruptionBudgets": {"enabled": False}}),
    ("HorizontalPodAutoscaler", {"gateway": {"replicas": 2}, "triton": {"replicas": 2}}),
    ("NetworkPolicy", {"networkPolicies": {"enabled": False}}),
    ("PodMonitor", {"monitoring": {}}),
    ("PodMonitor", {"monitoring": {"monitors": {"enabled": True, "kind": "ServiceMonitor"}}}),
    ("PrometheusRule", {"monitoring": {}}),
    ("PriorityClass", {"priorities": {"create": False}, "jobs": {}}),
    ("ResourceQuota", {"jobs": {}}),
    ("StatefulSet", {"postgresql": {}, "nats": {}, "objects": {}, "control": {}}),
)


def test_each_kind_can_be_off(subtests: pytest.Subtests) -> None:
    objects = template(**EVERYTHING)
    for kind, off in SWITCHED:
        with subtests.test(kind=kind, off=off):
            assert kinds(objects, kind)
            assert not kinds(template(**EVERYTHING | off), kind)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"gateway": {"replicas": 2}}, "disruptionBudgets.enabled: this cluster has no policy/v1"),
        (
            {"gateway": {"autoscaling": {"enabled": True}}, "disruptionBudgets": {"enabled": False}},
            "gateway.autoscaling.enabled: this cluster has no",
        ),
        (
            {"triton": {"autoscaling": {"enabled": True}}, "disruptionBudgets": {"enabled": False}},
            "triton.autoscaling.enabled: this cluster has no",
        ),
    ],
)
def test_a_cluster_without_a_kind_is_told_which_switch(given: dict[str, Any], said: str) -> None:
    assert said in run("template", "eyas", str(CHART), *values(given), "--kube-version=1.20.2", fails=True)
    run(
        "template",
        "eyas",
        str(CHART),
        *values({"gateway": {"replicas": 2}, "disruptionBudgets": {"enabled": False}}),
        "--kube-version=1.20.2",
    )


@pytest.mark.requirement("C-07")
def test_one_of_several_may_be_taken_away_at_a_time() -> None:
    objects = template(**EVERYTHING)
    deployments = {name: deployment for name, deployment in kinds(objects, "Deployment").items() if "dask" not in name}
    labels = {name: deployment["spec"]["template"]["metadata"]["labels"] for name, deployment in deployments.items()}
    budgets = kinds(objects, "PodDisruptionBudget")
    assert budgets.keys() == labels.keys()
    for name, one in budgets.items():
        assert one["spec"]["maxUnavailable"] == 1
        assert [part for part, found in labels.items() if one["spec"]["selector"]["matchLabels"].items() <= found.items()] == [name]
    assert not kinds(template(), "PodDisruptionBudget"), "the only one could never be moved"


def test_replicas_are_spread() -> None:
    for given, over, wanted in (
        ({}, ["kubernetes.io/hostname"], "ScheduleAnyway"),
        (EVERYTHING, EVERYTHING["spread"]["over"], "DoNotSchedule"),
    ):
        objects = template(**given)
        for one in kinds(objects, "Deployment").values():
            constraints = one["spec"]["template"]["spec"]["topologySpreadConstraints"]
            assert [each["topologyKey"] for each in constraints] == over
            for each in constraints:
                assert (each["whenUnsatisfiable"], each["maxSkew"]) == (wanted, 1)
                assert each["labelSelector"]["matchLabels"] == one["spec"]["selector"]["matchLabels"]
    assert "topologySpreadConstraints" not in pods(template(spread={"over": []}))["eyas-gateway"]


@pytest.mark.requirement("C-07")
def test_gateways_scale_by_cpu_and_tritons_by_their_queue() -> None:
    objects = template(**EVERYTHING)
    found = kinds(objects, "HorizontalPodAutoscaler")
    for name, one in found.items():
        assert one["spec"]["scaleTargetRef"] == {"apiVersion": "apps/v1", "kind": "Deployment", "name": name}
        assert "replicas" not in kinds(objects, "Deployment")[name]["spec"], "or each upgrade would undo what was scaled"
    assert (found["eyas-gateway"]["spec"]["minReplicas"], found["eyas-gateway"]["spec"]["maxReplicas"]) == (2, 6)
    (cpu,) = found["eyas-gateway"]["spec"]["metrics"]
    assert cpu["resource"] == {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 70}}
    (queue,) = found["eyas-triton"]["spec"]["metrics"]
    (rule,) = yaml.safe_load((CHART / "files/prometheus-adapter.yaml").read_text())
    assert queue["pods"] == {"metric": {"name": rule["name"]["as"]}, "target": {"type": "AverageValue", "averageValue": "8"}}


def test_stages_give_way_and_have_a_quota(tmp_path: Path) -> None:
    objects = template(**EVERYTHING)
    classes = kinds(objects, "PriorityClass")
    serving, stages = classes["there-eyas-serving"], classes["there-eyas-stages"]
    assert serving["value"] > 0 > stages["value"]
    assert stages["preemptionPolicy"] == "Never"
    job = stage(jobs_settings(objects, tmp_path))
    assert job["spec"]["template"]["spec"]["priorityClassName"] == "there-eyas-stages"
    used = {name: pod["priorityClassName"] for name, pod in pods(objects).items()}
    assert {used.pop(f"eyas-dask-{part}") for part in ("scheduler", "worker")} == {"there-eyas-stages"}
    assert set(used.values()) == {"there-eyas-serving"}
    quota = kinds(objects, "ResourceQuota")["eyas-stages"]["spec"]
    assert quota["hard"] == {"requests.cpu": "64", "requests.nvidia.com/gpu": "4"}
    assert quota["scopeSelector"]["matchExpressions"] == [{"scopeName": "PriorityClass", "operator": "In", "values": ["there-eyas-stages"]}]
    named = template(priorities={"create": True, "serving": "first", "stages": "last"})
    assert not kinds(named, "PriorityClass")
    assert jobs_settings(named, tmp_path).priority_class == "last"


def test_prometheus_finds_every_port_with_metrics() -> None:
    objects = template(**EVERYTHING)
    spec = kinds(objects, "PodMonitor")["eyas"]["spec"]
    (endpoint,) = spec["podMetricsEndpoints"]
    assert (endpoint["path"], spec["namespaceSelector"]) == ("/metrics", {"matchNames": ["there"]})
    found = {
        name
        for name, one in kinds(objects, "Deployment").items()
        if spec["selector"]["matchLabels"].items() <= one["spec"]["template"]["metadata"]["labels"].items()
        for port in one["spec"]["template"]["spec"]["containers"][0]["ports"]
        if port["name"] == endpoint["port"]
    }
    assert found == {"eyas-control", "eyas-gateway", "eyas-triton"}


def test_a_service_monitor_finds_the_same_pods_by_their_services() -> None:
    given = {
        "monitoring": {"monitors": {"enabled": True, "kind": "ServiceMonitor", "labels": {"release": "prometheus"}, "interval": "30s"}}
    }
    objects = template(**EVERYTHING | given)
    assert not kinds(objects, "PodMonitor")
    found = kinds(objects, "ServiceMonitor")["eyas"]
    assert found["metadata"]["labels"]["release"] == "prometheus"
    spec = found["spec"]
    (endpoint,) = spec["endpoints"]
    assert endpoint == {"port": "metrics", "path": "/metrics", "interval": "30s"}
    assert spec["namespaceSelector"] == {"matchNames": ["there"]}
    reached = set()
    for service in kinds(objects, "Service").values():
        if not spec["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items():
            continue
        for port in (one for one in service["spec"]["ports"] if one["name"] == endpoint["port"]):
            for name, one in kinds(objects, "Deployment").items():
                labels, container = one["spec"]["template"]["metadata"]["labels"], one["spec"]["template"]["spec"]["containers"][0]
                if service["spec"]["selector"].items() <= labels.items():
                    assert port["targetPort"] in [there["name"] for there in container["ports"]]
                    reached.add(name)
    assert reached == {"eyas-control", "eyas-gateway", "eyas-triton"}


def test_a_dashboard_is_a_configmap_that_grafanas_sidecar_finds(tmp_path: Path) -> None:
    files = {one.name: one.read_text() for one in (CHART / "files/dashboards").glob("*.json")}
    found = {name: one for name, one in kinds(template(**EVERYTHING), "ConfigMap").items() if "-dashboard-" in name}
    assert {key: text for one in found.values() for key, text in one["data"].items()} == files
    for one in found.values():
        assert one["metadata"]["labels"]["grafana_dashboard"] == "1"
        assert one["metadata"]["annotations"] == {"grafana_folder": "Eyas"}
    assert not [name for name in kinds(template(), "ConfigMap") if "-dashboard-" in name]


def test_the_adapters_rule_is_a_query_that_gives_milliseconds_by_pod(tmp_path: Path) -> None:
    """By promtool: 30 requests a minute that waited 6 ms each, and a Triton that nobody asks."""
    (rule,) = yaml.safe_load((CHART / "files/prometheus-adapter.yaml").read_text())
    query = rule["metricsQuery"].replace("<<.LabelMatchers>>", 'namespace="there",pod=~"a|b"').replace("<<.GroupBy>>", "pod")
    assert "<<" not in query
    assert rule["seriesQuery"].startswith("nv_inference_queue_duration_us{")
    series = [
        {"series": f'{name}{{namespace="there",pod="{pod}"}}', "values": f"0+{step if pod == 'a' else 0}x10"}
        for name, step in (("nv_inference_queue_duration_us", 180_000), ("nv_inference_request_success", 30))
        for pod in ("a", "b")
    ]
    wanted = [{"labels": '{pod="a"}', "value": 6}, {"labels": '{pod="b"}', "value": 0}]
    expected = [{"expr": query, "eval_time": "5m", "exp_samples": wanted}]
    file = tmp_path / "test.yaml"
    file.write_text(yaml.safe_dump({"tests": [{"interval": "1m", "input_series": series, "promql_expr_test": expected}]}))
    ended = subprocess.run([program("prometheus", "promtool"), "test", "rules", str(file)], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
