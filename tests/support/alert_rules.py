"""The rules for Prometheus as they lie in the chart."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import yaml

RULES = Path(__file__).parents[2] / "helm/eyas/files/prometheus-rules.yaml"


@cache
def groups() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = yaml.safe_load(RULES.read_text())["groups"]
    return found


@cache
def rules(kind: str) -> dict[str, dict[str, Any]]:
    """By name; `kind` is `record` or `alert`."""
    return {one[kind]: one for group in groups() for one in group["rules"] if kind in one}
