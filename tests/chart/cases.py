"""What is said of the chart in these tests, and what it makes of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from services.executors.jobsettings import JobSettings, read_settings
from services.executors.jobspec import StoredSpec, manifest
from shared.contracts.stage import File, StageSpec
from shared.testing.executor_suite import stage_spec

VERSIONS = ("1.31", "1.32", "1.33", "1.34", "1.35", "1.36", "1.37")
EVERYTHING: dict[str, Any] = {
    "control": {"replicas": 2},
    "gateway": {"autoscaling": {"enabled": True, "max": 6}},
    "triton": {"autoscaling": {"enabled": True, "milliseconds": 8}, "tls": {"certManager": True}},
    "jobs": {"quota": {"requests.cpu": 64, "requests.nvidia.com/gpu": "4"}},
    "priorities": {"create": True},
    "spread": {"over": ["topology.kubernetes.io/zone", "kubernetes.io/hostname"], "strict": True},
    "postgresql": {"enabled": True},
    "nats": {"enabled": True},
    "objects": {"enabled": True, "bucket": "films"},
    "volume": {"storageClass": "shared"},
    "dask": {"workers": 2},
    "backup": {"schedule": "0 3 * * *", "existingClaim": "backups"},
    "monitoring": {
        "monitors": {"enabled": True, "labels": {"release": "prometheus"}},
        "rules": {"enabled": True},
        "dashboards": {"enabled": True, "annotations": {"grafana_folder": "Eyas"}},
    },
}
CASES: dict[str, dict[str, Any]] = {
    "defaults": {},
    "small": {"profile": "small"},
    "gpu": {"profile": "gpu"},
    "one node": {"volume": {"hostPath": "/srv/eyas"}},
    "everything": EVERYTHING,
    "all said": {
        "images": {"registry": "registry.example/team", "tag": "7", "pullSecrets": ["pull"], "gpu": {"torch": "stages-gpu"}},
        "identity": {"user": 1_000_650_000, "group": 1_000_650_000},
        "token": {"existingSecret": "first", "key": "value"},
        "database": {"existingSecret": "postgres"},
        "events": {"existingSecret": "nats"},
        "features": {"existingSecret": "redis"},
        "auditExport": {"url": "https://collector.example/eyas", "tokenSecret": "collector"},
        "oidc": {
            "issuer": "https://sso.example/realms/ml",
            "audience": "eyas",
            "clientId": "console",
            "clientSecret": "oidc",
            "roles": {"ml": {"role": "admin"}, "shop: #1": {"role": "operator", "recommenders": ["films"]}},
            "consoleUrl": "https://eyas.example",
        },
        "data": {"roots": ["s3://lake/films", "s3://pond"], "existingSecret": "s3", "databases": "shops"},
        "families": ["acme.fading", "acme.others"],
        "volume": {"existingClaim": "mine"},
        "dask": {"workers": 3, "image": "nvtabular-stages"},
        "backup": {"schedule": "@daily", "bucket": "s3://safe/eyas", "keep": 30},
        "control": {"replicas": 3, "imageHosts": ["a.example", "b.example"]},
        "gateway": {"replicas": 2},
        "triton": {"replicas": 3},
        "priorities": {"serving": "first", "stages": "last"},
        "artifacts": {
            "url": "s3://kept/films",
            "endpoint": "https://store.example:9000",
            "region": "eu-west-3",
            "existingSecret": "keeper",
        },
        "networkPolicies": {"clients": [{"namespaceSelector": {}}], "artifacts": {"ports": [9000]}},
        "monitoring": {"monitors": {"enabled": True, "kind": "ServiceMonitor", "labels": {"release": "prometheus"}}},
        "nodeSelector": {"disk": "fast"},
        "tolerations": [{"key": "gpu", "operator": "Exists"}],
    },
}
EXPOSED: dict[str, Any] = {
    "trustedProxies": ["10.244.0.0/16", "fd00::7"],
    "networkPolicies": {
        "proxies": [
            {
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "edge"}},
                "podSelector": {"matchLabels": {"app.kubernetes.io/name": "ingress"}},
            }
        ]
    },
    "control": {
        "ingress": {
            "enabled": True,
            "host": "eyas.example.com",
            "className": "nginx",
            "tlsSecret": "console-tls",
            "annotations": {"cert-manager.io/cluster-issuer": "public"},
        },
        "httpRoute": {
            "enabled": True,
            "host": "eyas.example.com",
            "parentRefs": [{"name": "public", "namespace": "edge", "sectionName": "https"}, {"name": "inside", "sectionName": "tls"}],
            "annotations": {"owner": "platform"},
        },
    },
    "gateway": {
        "ingress": {"enabled": True, "host": "recommend.example.com", "tlsSecret": "gateway-tls"},
        "httpRoute": {"enabled": True, "host": "recommend.example.com", "parentRefs": [{"name": "public", "sectionName": "https"}]},
    },
}
"""An Ingress and an HTTPRoute for each part."""
CASES["exposed"] = EXPOSED
_FILE = StoredSpec("file:///var/lib/eyas/artifacts", File(sha256="ab" * 32, size=1))


def kinds(objects: list[dict[str, Any]], kind: str) -> dict[str, dict[str, Any]]:
    return {one["metadata"]["name"]: one for one in objects if one["kind"] == kind}


def workloads(objects: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Every pod that is made, with its labels: of hooks and tests, too."""
    found = {one["metadata"]["name"]: one["spec"]["template"] for one in objects if "template" in one.get("spec", {})}
    found |= {name: one["spec"]["jobTemplate"]["spec"]["template"] for name, one in kinds(objects, "CronJob").items()}
    return found | kinds(objects, "Pod")


def pods(objects: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Of what serves."""
    return {name: one["spec"]["template"]["spec"] for name, one in kinds(objects, "Deployment").items()}


def jobs_settings(objects: list[dict[str, Any]], folder: Path) -> JobSettings:
    """As the platform reads them."""
    (folder / "jobs.yaml").write_text(kinds(objects, "ConfigMap")["eyas-jobs"]["data"]["jobs.yaml"])
    return read_settings(folder / "jobs.yaml")


def stage(settings: JobSettings, **model: Any) -> dict[str, Any]:
    """The Job of a training, as the control plane makes it when it has asked for the uid of what owns its Jobs. Torch has an image."""
    assert settings.owner is not None
    owner, images = settings.owner.model_copy(update={"uid": "0b5e"}), {"torch": "torch:1"} | settings.images
    settings = settings.model_copy(update={"owner": owner, "images": images})
    document = stage_spec("r1-train-1", stage="train").model_dump(mode="json", by_alias=True)
    document["recommender"]["model"] = model
    return dict(manifest(StageSpec.model_validate(document), _FILE, settings, {"train": "stages.train"}))
