"""Kinds of the Prometheus operator and of cert-manager as far as the chart uses them, by their documented fields: others are refused.

Their own schemas come with these operators: they are not tried here.
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
_SPECS = {
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
    return one["apiVersion"] in ("monitoring.coreos.com/v1", "cert-manager.io/v1")


def validate(one: dict[str, Any]) -> None:
    metadata = _closed(["name", "labels"], name={"type": "string"}, labels=_TEXTS)
    whole = _closed(
        ["apiVersion", "kind", "metadata", "spec"],
        apiVersion={"type": "string"},
        kind={"type": "string"},
        metadata=metadata,
        spec=_SPECS[one["kind"]],
    )
    jsonschema.validate(one, whole)
