"""Kinds of the Prometheus operator, cert-manager and the Gateway API as far as the chart uses them. Other fields are refused.

The fields are the documented ones. The full schemas come with these operators: they are not tried here.
"""

from __future__ import annotations

from typing import Any

import jsonschema

_TEXTS = {"type": "object", "additionalProperties": {"type": "string"}}
_DURATION = {"type": "string", "pattern": r"^(\d+(ms|s|m|h|d))+$"}


def _closed(required: list[str], **properties: Any) -> dict[str, Any]:
    return {"type": "object", "additionalProperties": False, "required": required, "properties": properties}


_RULE = _closed(
    ["expr"],
    record={"type": "string"},
    alert={"type": "string"},
    expr={"type": "string"},
    **{"for": _DURATION, "keep_firing_for": _DURATION},
    labels=_TEXTS,
    annotations=_TEXTS,
)
_GROUP = _closed(["name", "rules"], name={"type": "string"}, interval=_DURATION, rules={"type": "array", "minItems": 1, "items": _RULE})
_TARGETS = {"type": "array", "items": {"type": "string"}}
_ENDPOINT = _closed(["port"], port={"type": "string"}, path={"type": "string"}, interval=_DURATION)
_LABEL = {"type": "string", "minLength": 1, "maxLength": 63, "pattern": "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"}
_SUBDOMAIN = {
    "type": "string",
    "minLength": 1,
    "maxLength": 253,
    "pattern": r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$",
}
_OBJECT_NAME = {"type": "string", "minLength": 1, "maxLength": 253}
_PORT = {"type": "integer", "minimum": 1, "maximum": 65535}
_GATEWAY_DURATION = {"type": "string", "pattern": "^([0-9]{1,5}(h|m|s|ms)){1,4}$"}
_HTTP_RULE = _closed(
    [],
    matches={
        "type": "array",
        "maxItems": 64,
        "items": _closed(
            [],
            path=_closed(
                [],
                type={"enum": ["Exact", "PathPrefix", "RegularExpression"]},
                value={"type": "string", "maxLength": 1024, "pattern": "^/"},
            ),
        ),
    },
    backendRefs={"type": "array", "maxItems": 16, "items": _closed(["name", "port"], name=_OBJECT_NAME, namespace=_LABEL, port=_PORT)},
    timeouts=_closed([], request=_GATEWAY_DURATION, backendRequest=_GATEWAY_DURATION),
)
_SPECS = {
    "HTTPRoute": _closed(
        ["parentRefs", "hostnames", "rules"],
        parentRefs={
            "type": "array",
            "maxItems": 32,
            "items": _closed(["name"], name=_OBJECT_NAME, namespace=_LABEL, sectionName=_SUBDOMAIN, port=_PORT),
        },
        hostnames={"type": "array", "maxItems": 16, "items": _SUBDOMAIN},
        rules={"type": "array", "minItems": 1, "maxItems": 16, "items": _HTTP_RULE},
    ),
    "PrometheusRule": _closed(["groups"], groups={"type": "array", "items": _GROUP}),
    "PodMonitor": _closed(
        ["selector", "podMetricsEndpoints"],
        namespaceSelector=_closed(["matchNames"], matchNames={"type": "array", "items": {"type": "string"}}),
        selector=_closed(["matchLabels"], matchLabels=_TEXTS),
        podTargetLabels=_TARGETS,
        podMetricsEndpoints={"type": "array", "minItems": 1, "items": _ENDPOINT},
    ),
    "ServiceMonitor": _closed(
        ["selector", "endpoints"],
        namespaceSelector=_closed(["matchNames"], matchNames={"type": "array", "items": {"type": "string"}}),
        selector=_closed(["matchLabels"], matchLabels=_TEXTS),
        targetLabels=_TARGETS,
        endpoints={"type": "array", "minItems": 1, "items": _ENDPOINT},
    ),
    "Issuer": _closed([], selfSigned={"type": "object"}, ca=_closed(["secretName"], secretName={"type": "string"})),
    "Certificate": _closed(
        ["secretName", "issuerRef", "duration", "privateKey"],
        secretName={"type": "string"},
        commonName={"type": "string"},
        dnsNames={"type": "array", "minItems": 1, "items": {"type": "string"}},
        isCA={"type": "boolean"},
        duration=_DURATION,
        renewBefore=_DURATION,
        usages={"type": "array", "items": {"enum": ["server auth", "client auth"]}},
        privateKey=_closed(
            ["algorithm", "size"], algorithm={"const": "ECDSA"}, size={"const": 256}, rotationPolicy={"enum": ["Always", "Never"]}
        ),
        issuerRef=_closed(["name", "kind"], name={"type": "string"}, kind={"const": "Issuer"}),
    ),
}


def is_custom(one: dict[str, Any]) -> bool:
    return one["apiVersion"] in ("monitoring.coreos.com/v1", "cert-manager.io/v1", "gateway.networking.k8s.io/v1")


def validate(one: dict[str, Any]) -> None:
    metadata = _closed(["name", "labels"], name={"type": "string"}, labels=_TEXTS, annotations=_TEXTS)
    whole = _closed(
        ["apiVersion", "kind", "metadata", "spec"],
        apiVersion={"type": "string"},
        kind={"type": "string"},
        metadata=metadata,
        spec=_SPECS[one["kind"]],
    )
    jsonschema.validate(one, whole)
