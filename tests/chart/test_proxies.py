"""Ingress and HTTPRoute of control plane and gateway, with the trusted proxies that they need."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from services.settings import Settings
from tests.chart.cases import EXPOSED, kinds, pods
from tests.chart.helm import CHART, run, template, values

HOSTS = {"control": "eyas.example.com", "gateway": "recommend.example.com"}


def changed(path: str, value: Any) -> dict[str, Any]:
    """The values of EXPOSED with one change; None removes the key."""
    result = copy.deepcopy(EXPOSED)
    *parents, last = path.split(".")
    node = result
    for name in parents:
        node = node[name]
    if value is None:
        del node[last]
    else:
        node[last] = value
    return result


def test_nothing_is_exposed_by_default() -> None:
    objects = template()
    assert not kinds(objects, "Ingress")
    assert not kinds(objects, "HTTPRoute")
    for pod in pods(objects).values():
        assert "EYAS_TRUSTED_PROXIES" not in {variable["name"] for variable in pod["containers"][0].get("env", [])}


@pytest.mark.requirement("C-07")
def test_an_ingress_leads_to_the_port_of_its_part_over_tls() -> None:
    objects = template(**EXPOSED)
    for part, host in HOSTS.items():
        ingress = kinds(objects, "Ingress")[f"eyas-{part}"]
        settings = EXPOSED[part]["ingress"]
        assert ingress["metadata"].get("annotations") == settings.get("annotations")
        assert ingress["spec"].get("ingressClassName") == settings.get("className")
        assert ingress["spec"]["tls"] == [{"hosts": [host], "secretName": settings["tlsSecret"]}]
        (rule,) = ingress["spec"]["rules"]
        (path,) = rule["http"]["paths"]
        assert (rule["host"], path["path"], path["pathType"]) == (host, "/", "Prefix")
        service = kinds(objects, "Service")[path["backend"]["service"]["name"]]
        assert service["spec"]["selector"]["app.kubernetes.io/component"] == part
        assert path["backend"]["service"]["port"]["name"] in {port["name"] for port in service["spec"]["ports"]} - {"metrics"}


@pytest.mark.requirement("C-07")
def test_a_route_leads_from_https_listeners_to_its_part_and_does_not_cut_streams() -> None:
    objects = template(**EXPOSED)
    for part, host in HOSTS.items():
        route = kinds(objects, "HTTPRoute")[f"eyas-{part}"]
        settings = EXPOSED[part]["httpRoute"]
        assert route["metadata"].get("annotations") == settings.get("annotations")
        assert (route["spec"]["parentRefs"], route["spec"]["hostnames"]) == (settings["parentRefs"], [host])
        (rule,) = route["spec"]["rules"]
        assert rule["matches"] == [{"path": {"type": "PathPrefix", "value": "/"}}]
        (backend,) = rule["backendRefs"]
        service = kinds(objects, "Service")[backend["name"]]
        assert service["spec"]["selector"]["app.kubernetes.io/component"] == part
        assert backend["port"] == next(port["port"] for port in service["spec"]["ports"] if port["name"] == "api")
        assert rule.get("timeouts") == ({"request": "0s"} if part == "control" else None)
    (rule,) = kinds(template(**changed("control.httpRoute.timeout", "")), "HTTPRoute")["eyas-control"]["spec"]["rules"]
    assert "timeouts" not in rule


def test_the_platform_reads_the_trusted_proxies_of_the_chart() -> None:
    objects = template(**EXPOSED)
    for part in HOSTS:
        variables = pods(objects)[f"eyas-{part}"]["containers"][0]["env"]
        env = {variable["name"]: variable.get("value") for variable in variables}
        assert Settings(trusted_proxies=env["EYAS_TRUSTED_PROXIES"]).trusted_proxies == EXPOSED["trustedProxies"]


REFUSED = (
    ("control.ingress.host", None, "control.ingress.host: the name that clients use is missing"),
    ("gateway.httpRoute.host", None, "gateway.httpRoute.host: the name that clients use is missing"),
    ("gateway.ingress.host", "eyas.example.com", "gateway.ingress.host: eyas.example.com is the host of the control plane"),
    ("gateway.httpRoute.host", "eyas.example.com", "gateway.httpRoute.host: eyas.example.com is the host of the control plane"),
    ("control.ingress.tlsSecret", None, "control.ingress.tlsSecret: without TLS, tokens would be readable"),
    ("gateway.ingress.tlsSecret", None, "gateway.ingress.tlsSecret: without TLS, tokens would be readable"),
    ("control.httpRoute.parentRefs", [], "control.httpRoute.parentRefs: the Gateway is missing"),
    ("control.httpRoute.parentRefs", [{"name": "public"}], "control.httpRoute.parentRefs: set name and sectionName"),
    ("gateway.httpRoute.parentRefs", [{"sectionName": "https"}], "gateway.httpRoute.parentRefs: set name and sectionName"),
    ("trustedProxies", None, "control.ingress.enabled: trustedProxies is empty, so the console's cookie would not be Secure"),
    ("networkPolicies.proxies", [], "control.ingress.enabled: the NetworkPolicies admit no proxy; set networkPolicies.proxies"),
    ("trustedProxies", ["*"], "trustedProxies"),
    ("trustedProxies", ["0.0.0.0/0"], "trustedProxies"),
    ("trustedProxies", ["ingress.example"], "trustedProxies"),
    ("control.ingress.host", "https://eyas.example.com", "host"),
    ("control.ingress.host", "*.example.com", "host"),
    ("control.httpRoute.timeout", "0", "timeout"),
)


def test_values_that_would_expose_a_part_badly_are_refused(subtests: pytest.Subtests) -> None:
    for path, value, message in REFUSED:
        with subtests.test(path=path, value=value):
            assert message in run("template", "eyas", str(CHART), *values(changed(path, value)), fails=True)


def test_each_part_alone_needs_the_trusted_proxies(subtests: pytest.Subtests) -> None:
    for part in HOSTS:
        for kind in ("ingress", "httpRoute"):
            with subtests.test(part=part, kind=kind):
                alone = {part: {kind: EXPOSED[part][kind]}, "networkPolicies": EXPOSED["networkPolicies"]}
                message = run("template", "eyas", str(CHART), *values(alone), fails=True)
                assert f"{part}.{kind}.enabled: trustedProxies is empty" in message
                template(**alone, trustedProxies=["10.244.0.0/16"])


@pytest.mark.parametrize("policies", [{"enabled": False}, {"clients": [{"namespaceSelector": {}}]}])
def test_proxies_may_be_admitted_as_clients_or_without_policies(policies: dict[str, Any]) -> None:
    assert kinds(template(**EXPOSED | {"networkPolicies": policies}), "Ingress").keys() == {"eyas-control", "eyas-gateway"}


def test_the_notes_say_where_the_parts_are() -> None:
    arguments = ["install", "eyas", str(CHART), "--dry-run=client", "--namespace", "there"]
    notes = run(*arguments, *values(EXPOSED))
    assert "Console and API: https://eyas.example.com" in notes
    assert "Recommendations and events: https://recommend.example.com" in notes
    assert "No other pod may connect" not in notes
    assert "No other pod may connect" in run(*arguments)
