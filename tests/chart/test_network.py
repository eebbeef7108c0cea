"""What may talk to what, worked out from the rendered policies as a cluster that enforces them would."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.chart.cases import CASES, jobs_settings, kinds, stage, workloads
from tests.chart.helm import CHART, template

PORTS = (53, 443, 1234, 4222, 5432, 6379, 6443, 8001, 8002, 8003, 8080, 8222, 8786, 8787, 9000, 9090, 29500)
DNS = {"k8s-app": "kube-dns"}
PROMETHEUS = {"app.kubernetes.io/name": "prometheus"}
STRANGER = {"app": "shop"}
Pods = dict[str, dict[str, str]]


def chosen(selector: dict[str, Any], labels: dict[str, str]) -> bool:
    return bool(selector.get("matchLabels", {}).items() <= labels.items())


def passes(rules: list[dict[str, Any]], way: str, peer: dict[str, str], *, inside: bool, port: int) -> bool:
    """`inside`: the peer is of the same namespace."""
    for rule in rules:
        if "ports" in rule and port not in [one["port"] for one in rule["ports"]]:
            continue
        if way not in rule:
            return True
        for one in rule[way]:
            there = chosen(one["namespaceSelector"], {}) if "namespaceSelector" in one else inside
            if "ipBlock" not in one and there and chosen(one.get("podSelector", {}), peer):
                return True
    return False


def edges(objects: list[dict[str, Any]], ours: Pods) -> set[tuple[str, str, int]]:
    """Who reaches whom on which port: pods of the release, and others of other namespaces."""
    policies = [one["spec"] for one in kinds(objects, "NetworkPolicy").values()]
    others = {"dns": DNS, "prometheus": PROMETHEUS, "stranger": STRANGER}

    def open_(pod: dict[str, str], direction: str, way: str, peer: dict[str, str], *, inside: bool, port: int) -> bool:
        of = [one for one in policies if chosen(one["podSelector"], pod) and direction in one["policyTypes"]]
        rules = [rule for one in of for rule in one.get(direction.lower(), [])]
        return not of or passes(rules, way, peer, inside=inside, port=port)

    found = set()
    for first, labels in (ours | others).items():
        for second, peer in (ours | others).items():
            inside = first in ours and second in ours
            for port in PORTS if first in ours or second in ours else ():
                goes = first in others or open_(labels, "Egress", "to", peer, inside=inside, port=port)
                comes = second in others or open_(peer, "Ingress", "from", labels, inside=inside, port=port)
                if goes and comes:
                    found.add((first, second, port))
    return found


def pods_of(objects: list[dict[str, Any]], folder: Path) -> Pods:
    found = {one["metadata"]["labels"]["app.kubernetes.io/component"]: one["metadata"]["labels"] for one in workloads(objects).values()}
    settings = jobs_settings(objects, folder)
    found["stage"] = stage(settings)["spec"]["template"]["metadata"]["labels"]
    return found | {"rank": stage(settings, framework="torch", train={"processes": 2})["spec"]["template"]["metadata"]["labels"]}


def anywhere(part: str, *ports: int) -> set[tuple[str, str, int]]:
    """What is named without saying where it is."""
    return {(part, other, port) for other in ("dns", "prometheus", "stranger") for port in ports}


ALWAYS = {
    *((part, "dns", 53) for part in ("control", "gateway", "stage", "rank", "test")),
    *(("test", part, 8080) for part in ("control", "gateway")),
    *(("prometheus", part, 9090) for part in ("control", "gateway")),
    ("prometheus", "triton", 8002),
    ("control", "triton", 8001),
    ("control", "gateway", 8080),
    ("gateway", "triton", 8001),
    ("test", "triton", 8003),
    *(("rank", "rank", port) for port in PORTS),
    *anywhere("control", 443, 6443),
}
DASK = {
    *((part, "dns", 53) for part in ("dask-scheduler", "dask-worker")),
    *((part, "dask-scheduler", 8786) for part in ("stage", "rank", "dask-worker")),
    *((part, "dask-worker", 8786) for part in ("dask-scheduler", "dask-worker")),
}


@pytest.mark.requirement("C-07")
@pytest.mark.parametrize(
    ("case", "more"),
    [
        ("defaults", set()),
        (
            "everything",
            {
                *DASK,
                *((part, "dns", 53) for part in ("migrate", "backup")),
                *((part, "postgresql", 5432) for part in ("control", "gateway", "migrate", "backup")),
                *((part, "nats", 4222) for part in ("control", "gateway")),
                *((part, "objects", 9000) for part in ("control", "gateway", "stage", "rank", "backup")),
            },
        ),
        (
            "all said",
            {
                *DASK,
                *((part, "dns", 53) for part in ("migrate", "backup")),
                *anywhere("backup", 443, 5432, 9000),
                *anywhere("control", 443, 4222, 5432, 6379, 9000),
                *anywhere("gateway", 443, 4222, 5432, 6379, 9000),
                *anywhere("migrate", 5432),
                *anywhere("stage", 443, 5432, 9000),
                *anywhere("rank", 443, 5432, 9000),
                *((one, part, 8080) for one in ("dns", "prometheus", "stranger") for part in ("control", "gateway")),  # as clients says
            },
        ),
    ],
)
def test_nothing_passes_but_what_is_declared(case: str, more: set[tuple[str, str, int]], tmp_path: Path) -> None:
    objects = template(**CASES[case])
    assert edges(objects, pods_of(objects, tmp_path)) == ALWAYS | more


@pytest.mark.requirement("C-07")
def test_nobody_may_ask_until_an_installation_says_who(tmp_path: Path) -> None:
    """And the notes say so where nobody is named."""
    objects = template()
    asked = {one for one in edges(objects, pods_of(objects, tmp_path)) if one[2] == 8080}
    assert asked == {("test", "control", 8080), ("test", "gateway", 8080), ("control", "gateway", 8080), ("rank", "rank", 8080)}
    shop = {"namespaceSelector": {}, "podSelector": {"matchLabels": STRANGER}}
    objects = template(networkPolicies={"clients": [shop]})
    assert {one for one in edges(objects, pods_of(objects, tmp_path)) if one[2] == 8080} - asked == {
        ("stranger", "control", 8080),
        ("stranger", "gateway", 8080),
    }
    notes = (CHART / "templates/NOTES.txt").read_text()
    assert "networkPolicies.clients" in notes


@pytest.mark.requirement("C-07")
def test_proxies_reach_the_parts_that_have_an_ingress_or_a_route(tmp_path: Path) -> None:
    proxy = {"namespaceSelector": {}, "podSelector": {"matchLabels": STRANGER}}
    ingress = {"enabled": True, "host": "eyas.example.com", "tlsSecret": "tls"}
    route = {"enabled": True, "host": "eyas.example.com", "parentRefs": [{"name": "public", "sectionName": "https"}]}
    values = {"trustedProxies": ["10.244.0.0/16"], "networkPolicies": {"proxies": [proxy]}}
    for exposed, parts in (
        ({}, set()),
        ({"control": {"ingress": ingress}}, {"control"}),
        ({"control": {"httpRoute": route}}, {"control"}),
        ({"gateway": {"httpRoute": route}}, {"gateway"}),
        ({"control": {"ingress": ingress}, "gateway": {"ingress": ingress | {"host": "recommend.example.com"}}}, {"control", "gateway"}),
    ):
        objects = template(**values, **exposed)
        reached = {edge for edge in edges(objects, pods_of(objects, tmp_path)) if edge[0] == "stranger"}
        assert reached == {("stranger", part, 8080) for part in parts}


def test_stages_ask_the_store_of_artifacts_alone_where_it_is(tmp_path: Path) -> None:
    store = {"namespaceSelector": {}, "podSelector": {"matchLabels": STRANGER}}
    objects = template(
        artifacts={"url": "s3://kept", "existingSecret": "keeper"}, networkPolicies={"artifacts": {"to": [store], "ports": [9000]}}
    )
    found = {one for one in edges(objects, pods_of(objects, tmp_path)) if one[2] == 9000}
    assert found == {(part, "stranger", 9000) for part in ("control", "gateway", "stage", "rank")} | {("rank", "rank", 9000)}


def test_edges_can_be_narrowed(tmp_path: Path) -> None:
    shop = {"namespaceSelector": {}, "podSelector": {"matchLabels": STRANGER}}
    objects = template(
        database={"existingSecret": "postgres"},
        networkPolicies={
            "clients": [shop],
            "prometheus": [],
            "database": {"to": [shop]},
            "kubernetes": {"to": [{"ipBlock": {"cidr": "10.1.2.3/32"}}]},
        },
    )
    found = edges(objects, pods_of(objects, tmp_path))
    assert {one for one in found if one[2] in (443, 5432, 6443)} == {
        (part, "stranger", 5432) for part in ("control", "gateway", "migrate")
    } | {("rank", "rank", port) for port in (443, 5432, 6443)}
    assert {one for one in found if one[1] in ("control", "gateway")} == {
        *((one, part, 8080) for one in ("stranger", "test") for part in ("control", "gateway")),
        ("control", "gateway", 8080),
    }
    (api,) = [
        one
        for one in kinds(objects, "NetworkPolicy")["eyas-control"]["spec"]["egress"]
        if {"port": 6443, "protocol": "TCP"} in one["ports"]
    ]
    assert api["to"] == [{"ipBlock": {"cidr": "10.1.2.3/32"}}]


def test_without_policies_everything_passes_so_the_sum_above_sees_them(tmp_path: Path) -> None:
    objects = template(networkPolicies={"enabled": False})
    assert not kinds(objects, "NetworkPolicy")
    assert ("stranger", "triton", 8001) in edges(objects, pods_of(objects, tmp_path))
