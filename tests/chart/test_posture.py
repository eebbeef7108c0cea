"""Every pod, hooks, tests and stages too, by the standard `restricted` and beyond it; rights, exactly."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest

from tests.chart.cases import CASES, EVERYTHING, VERSIONS, jobs_settings, kinds, stage, workloads
from tests.chart.helm import template

VOLUMES = {"configMap", "emptyDir", "persistentVolumeClaim", "secret"}
"""Of the standard's, those that are used. A folder of the node is beyond it: only who names one by volume.hostPath has it."""


def faults(pod: dict[str, Any], *, host_path: bool = False) -> list[str]:
    """Where a pod falls short."""
    of_pod = pod.get("securityContext", {})
    wrong = {
        "runs as root": of_pod.get("runAsNonRoot") is not True or not of_pod.get("runAsUser"),
        "has no seccomp profile": of_pod.get("seccompProfile") != {"type": "RuntimeDefault"},
        "shares the node": any(pod.get(one) for one in ("hostNetwork", "hostPID", "hostIPC")),
        "has volumes of the node": any(
            (one.keys() - {"name"}) - (VOLUMES | ({"hostPath"} if host_path else set())) for one in pod.get("volumes", [])
        ),
        "is told of Services": pod.get("enableServiceLinks") is not False,  # or one called 'eyas' would set EYAS_PORT
    }
    for one in [*pod.get("initContainers", []), *pod["containers"]]:
        exact = {
            "allowPrivilegeEscalation": False,
            "privileged": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        wrong[f"{one['name']}: security context"] = one.get("securityContext") != exact
        wrong[f"{one['name']}: ports of the node"] = any("hostPort" in port for port in one.get("ports", []))
        amounts = one.get("resources", {})
        wrong[f"{one['name']}: resources"] = not {"cpu", "memory"} <= amounts.get("requests", {}).keys() or "memory" not in amounts.get(
            "limits", {}
        )
    return [name for name, found in wrong.items() if found]


@pytest.mark.requirement("C-07")
@pytest.mark.parametrize("case", CASES)
def test_every_pod_is_restricted(case: str) -> None:
    found = workloads(template(**CASES[case]))
    assert {"eyas-control", "eyas-gateway", "eyas-triton", "eyas-test"} <= found.keys()
    assert {name: faults(one["spec"], host_path=case == "one node") for name, one in found.items()} == {name: [] for name in found}
    tokens = {name: one["spec"]["automountServiceAccountToken"] for name, one in found.items()}
    assert [name for name, mounted in tokens.items() if mounted] == ["eyas-control"], "nobody else may ask the cluster's API"
    assert set(tokens.values()) == {True, False}


@pytest.mark.requirement("C-07")
@pytest.mark.parametrize("case", CASES)
def test_a_mounted_secret_is_for_the_group_of_the_pod_alone(case: str, tmp_path: Path) -> None:
    """The platform refuses a secret that everybody can read, and Kubernetes' default is 0644."""
    objects = template(**CASES[case])
    specs = [one["spec"] for one in workloads(objects).values()] + [stage(jobs_settings(objects, tmp_path))["spec"]["template"]["spec"]]
    mounted = [(spec, volume["secret"]) for spec in specs for volume in spec.get("volumes", []) if "secret" in volume]
    assert len(mounted) >= 2
    for spec, secret in mounted:
        assert secret["defaultMode"] == 0o440
        assert spec["securityContext"]["fsGroup"] == spec["securityContext"]["runAsGroup"]


@pytest.mark.parametrize("missing", ["securityContext", "resources"])
def test_a_container_that_falls_short_is_noticed(missing: str) -> None:
    pod = workloads(template())["eyas-gateway"]["spec"]
    pod["containers"][0].pop(missing)
    assert faults(pod)


@pytest.mark.parametrize("case", CASES)
def test_what_stays_is_probed(case: str) -> None:
    objects = template(**CASES[case])
    for name, one in (kinds(objects, "Deployment") | kinds(objects, "StatefulSet")).items():
        for container in one["spec"]["template"]["spec"]["containers"]:
            assert {"startupProbe", "livenessProbe", "readinessProbe"} <= container.keys(), name


@pytest.mark.requirement("C-02", "C-07")
@pytest.mark.parametrize("case", CASES)
def test_a_stage_is_restricted_and_valid_everywhere(case: str, tmp_path: Path) -> None:
    settings = jobs_settings(template(**CASES[case]), tmp_path)
    for model in ({}, {"framework": "torch", "train": {"processes": 2}}):
        job = stage(settings, **model)
        pod = job["spec"]["template"]["spec"]
        assert faults(pod, host_path=case == "one node") == []
        assert pod["automountServiceAccountToken"] is False
        assert pod["serviceAccountName"] == "eyas-stages"
        for version in VERSIONS:
            kubernetes_validate.validate(job, version, strict=True)


@pytest.mark.requirement("C-07")
@pytest.mark.parametrize("case", CASES)
def test_the_control_plane_alone_has_rights_and_few(case: str) -> None:
    objects = template(**CASES[case])
    (role,) = kinds(objects, "Role").values()
    (binding,) = kinds(objects, "RoleBinding").values()
    assert [one["name"] for one in binding["subjects"]] == ["eyas-control"]
    assert binding["roleRef"]["name"] == role["metadata"]["name"]
    assert role["rules"] == [
        {"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["create", "get", "list", "watch", "delete"]},
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]},
        {"apiGroups": [""], "resources": ["pods/log"], "verbs": ["get"]},
        {"apiGroups": [""], "resources": ["events"], "verbs": ["list"]},
        {"apiGroups": ["apps"], "resources": ["deployments"], "resourceNames": ["eyas-control"], "verbs": ["get"]},
    ]
    assert not kinds(objects, "ClusterRole")
    assert not kinds(objects, "ClusterRoleBinding")
    accounts = {name: one["spec"].get("serviceAccountName", "default") for name, one in workloads(objects).items()}
    assert [name for name, account in accounts.items() if account == "eyas-control"] == ["eyas-control"]
    assert set(accounts.values()) <= {"default", "eyas-control", "eyas-stages"}


def test_of_the_whole_cluster_there_are_priority_classes_at_most() -> None:
    """Everything else goes with the namespace."""
    whole = {"PriorityClass"}
    assert {
        one["kind"] for one in template(**EVERYTHING) if one["kind"] in whole | {"ClusterRole", "Namespace", "CustomResourceDefinition"}
    } == whole
    for case in ("defaults", "small", "gpu"):
        assert not kinds(template(**CASES[case]), "PriorityClass")
