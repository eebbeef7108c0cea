"""Text form of guardrails, such as `errors: "< 1%"` or `latency_p99: "< 2x"`; errors name the expected form."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, WithJsonSchema

from shared.contracts.strict import Strict
from shared.domain.guardrail import Guardrail

_WRITTEN = re.compile(r"([<>])\s*([+-]?\d{1,9}(?:\.\d{1,9})?)\s*(x|%|ms|s|)")
OFF = "off"


@dataclass(frozen=True)
class _Form:
    """Units of a metric, each with its factor and its valid bounds."""

    sign: str
    units: dict[str, tuple[float, float, float]]
    wanted: str


_SHARE, _TIMES = (0.01, 0.0, 1.0), (1.0, 1.0, math.inf)
_LATENCY = _Form("<", {"x": _TIMES, "ms": (0.001, 0.0, math.inf), "s": (1.0, 0.0, math.inf)}, "'< 2x' (more than 1x) or '< 50ms'")
_SHARES = _Form("<", {"%": _SHARE, "": (1.0, 0.0, 1.0), "x": _TIMES}, "'< 1%' (between 0% and 100%) or '< 2x' (more than 1x)")
_FORMS = {
    "errors": _SHARES,
    "latency_p50": _LATENCY,
    "latency_p99": _LATENCY,
    "fallback": _SHARES,
    "empty": _SHARES,
    "coverage": _Form(">", {"x": (1.0, 0.0, 1.0)}, "'> 0.5x' (between 0x and 1x)"),
    "score_shift": _Form("<", {"": (1.0, 0.0, math.inf)}, "'< 0.5' (more than 0)"),
    "conversion": _Form(">", {"%": (0.01, -1.0, 0.0)}, "'> -5%' (between -100% and 0%)"),
}


def parse_guardrail(metric: str, value: str) -> Guardrail:
    """Parses a guardrail and checks its bound for the metric."""
    form = _FORMS[metric]
    match = _WRITTEN.fullmatch(value.strip())
    if match and match[1] == form.sign and match[3] in form.units:
        factor, above, below = form.units[match[3]]
        bound = float(match[2]) * factor
        if above < bound < below:
            return Guardrail(metric, bound, relative=match[3] == "x" or metric == "conversion")
    raise ValueError(f"expected a bound such as {form.wanted}, or {OFF}, got {value!r}")


def _checked(metric: str) -> Callable[[Any], Any]:
    def check(value: Any) -> Any:
        if value is None or value == OFF or value is False:  # YAML 1.1 reads `off` as false
            return None
        if not isinstance(value, str):
            raise ValueError(f"expected a bound such as {_FORMS[metric].wanted}, or {OFF}, got {value!r}")
        parse_guardrail(metric, value)
        return value.strip()

    return check


def _schema(metric: str) -> Any:
    return WithJsonSchema({"type": ["string", "null"], "examples": [_FORMS[metric].wanted.split("'")[1], OFF]})


class Guardrails(Strict):
    errors: Annotated[str | None, BeforeValidator(_checked("errors")), _schema("errors")] = Field(
        "< 1%",
        description="Share of the candidate's requests that failed (no or invalid scores, a full queue, an exception), or its ratio to the "
        "stable version's share.",
    )
    latency_p50: Annotated[str | None, BeforeValidator(_checked("latency_p50")), _schema("latency_p50")] = Field(
        "< 2x", description="Median time of the version's work (retrieval, filters, features, scores, order), against the stable version's."
    )
    latency_p99: Annotated[str | None, BeforeValidator(_checked("latency_p99")), _schema("latency_p99")] = Field(
        "< 2x", description="The 99th percentile of that time, against the stable version's."
    )
    fallback: Annotated[str | None, BeforeValidator(_checked("fallback")), _schema("fallback")] = Field(
        "< 1.5x",
        description="Share of answers that are fallbacks (popular items for an unknown user, no scores), as a mean over users, against the "
        "stable version's. A difference of at most one percentage point always passes.",
    )
    empty: Annotated[str | None, BeforeValidator(_checked("empty")), _schema("empty")] = Field(
        "< 1.5x",
        description="Share of answers without any item after the filters, as a mean over users, against the stable version's. A difference "
        "of at most one percentage point always passes.",
    )
    coverage: Annotated[str | None, BeforeValidator(_checked("coverage")), _schema("coverage")] = Field(
        None, description="Number of different items shown, against the stable version's."
    )
    score_shift: Annotated[str | None, BeforeValidator(_checked("score_shift")), _schema("score_shift")] = Field(
        None, description="Shift of the mean score, in standard deviations of the stable version's scores."
    )
    conversion: Annotated[str | None, BeforeValidator(_checked("conversion")), _schema("conversion")] = Field(
        None, description="Share of users with at least one hit, against the stable version's."
    )

    def rules(self) -> tuple[Guardrail, ...]:
        written = {metric: getattr(self, metric) for metric in _FORMS}
        return tuple(parse_guardrail(metric, value) for metric, value in written.items() if value is not None)
