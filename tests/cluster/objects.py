"""What a cluster has and whom it lets do what, over every kind that it knows: asked of its discovery, so no list here can forget one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from kubernetes import client

VERBS = frozenset({"create", "get", "list", "watch", "update", "patch", "delete", "deletecollection"})
RARE = frozenset({"impersonate", "bind", "escalate", "use", "approve", "sign", "proxy"})
"""Verbs that rights know and discovery doesn't tell of."""
COMING_AND_GOING = frozenset({"events", "leases", "componentstatuses"})
"""Written by the cluster about anything; no part of an installation."""


@dataclass(frozen=True)
class Kind:
    group: str
    version: str
    name: str
    """In the plural; a subresource as `pods/log`."""
    namespaced: bool
    verbs: frozenset[str]

    @property
    def path(self) -> str:
        return f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"


@dataclass(frozen=True, order=True)
class Right:
    group: str
    resource: str
    verb: str


def kinds(api: client.ApiClient) -> Iterator[Kind]:
    """Every kind and subresource, of each group in the version that the cluster prefers."""
    groups = [("", "v1")] + [(one["name"], one["preferredVersion"]["version"]) for one in _get(api, "/apis")["groups"]]
    for group, version in groups:
        path = f"/apis/{group}/{version}" if group else f"/api/{version}"
        for one in _get(api, path)["resources"]:
            yield Kind(group, version, one["name"], one["namespaced"], frozenset(one["verbs"]))


def present(api: client.ApiClient, namespace: str | None) -> set[tuple[str, str]]:
    """Kind and name of everything in a namespace; None: of all that lies in none."""
    found = set()
    for kind in kinds(api):
        if "list" not in kind.verbs or kind.namespaced is (namespace is None) or kind.name in COMING_AND_GOING:
            continue
        place = f"{kind.path}/namespaces/{namespace}/{kind.name}" if namespace else f"{kind.path}/{kind.name}"
        found |= {(kind.name, one["metadata"]["name"]) for one in _get(api, place)["items"]}
    return found


def may(api: client.ApiClient, right: Right, namespace: str | None, name: str | None = None) -> bool:
    """Whether who asks may do that, by the cluster's own word: what `kubectl auth can-i` asks."""
    resource, _, sub = right.resource.partition("/")
    asked = {"group": right.group, "resource": resource, "subresource": sub, "verb": right.verb, "namespace": namespace, "name": name}
    review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "spec": {"resourceAttributes": asked}}
    return bool(_call(api, "POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", review)["status"]["allowed"])


def table(api: client.ApiClient, known: Iterable[Kind], namespace: str) -> set[Right]:
    """All that who asks may do: each verb on each kind, in the namespace, or in none where the kind lies in none."""
    asked = ((Right(kind.group, kind.name, verb), kind) for kind in known for verb in sorted(VERBS | RARE | kind.verbs))
    return {right for right, kind in asked if may(api, right, namespace if kind.namespaced else None)}


def acting_as(api: client.ApiClient, namespace: str, account: str) -> client.ApiClient:
    """The same cluster, asked as a ServiceAccount."""
    acting = client.ApiClient(api.configuration)
    acting.set_default_header("Impersonate-User", f"system:serviceaccount:{namespace}:{account}")
    return acting


def declared(rules: list[dict[str, Any]]) -> tuple[set[Right], dict[Right, set[str]]]:
    """What a Role's rules say: rights on any object, and rights on objects of some names."""
    everywhere: set[Right] = set()
    named: dict[Right, set[str]] = {}
    for rule in rules:
        rights = {Right(group, one, verb) for group in rule["apiGroups"] for one in rule["resources"] for verb in rule["verbs"]}
        if names := rule.get("resourceNames"):
            for right in rights:
                named.setdefault(right, set()).update(names)
        else:
            everywhere |= rights
    return everywhere, named


def _get(api: client.ApiClient, path: str) -> dict[str, Any]:
    return _call(api, "GET", path)


def _call(api: client.ApiClient, method: str, path: str, body: Any = None) -> dict[str, Any]:
    headers = {"Accept": "application/json", "Content-Type": "application/json"}
    asked = api.param_serialize(method, path, header_params=headers, body=body, auth_settings=["BearerToken"])
    answer = api.call_api(*asked)
    answer.read()
    return dict(api.response_deserialize(answer, {"2XX": "object"}).data)
