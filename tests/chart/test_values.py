"""Values, schema and reference say the same, and nothing else is taken."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest
import yaml

from helm.values import LEFT, Chart
from tests.chart.helm import CHART

SCHEMA: dict[str, Any] = json.loads((CHART / "values.schema.json").read_text())
DEFAULTS: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text())


def closed(node: Any, place: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], dict[str, Any]]]:
    """Every group of values that names what it knows."""
    if isinstance(node, dict):
        if "properties" in node:
            yield place, node
        for key, one in node.items():
            inner = one.items() if key == "properties" else [("[]", one)] if key in ("items", "anyOf", "additionalProperties") else []
            for name, each in inner:
                yield from closed(each, (*place, name))
    if isinstance(node, list):
        for one in node:
            yield from closed(one, place)


def refused(values: dict[str, Any]) -> bool:
    return not jsonschema.Draft7Validator(SCHEMA).is_valid(values)


def test_the_schema_is_one_and_takes_the_defaults() -> None:
    jsonschema.Draft7Validator.check_schema(SCHEMA)
    assert not refused(DEFAULTS)
    assert Chart.model_validate(DEFAULTS) == Chart()


@pytest.mark.parametrize("name", ["small", "gpu"])
def test_the_schema_takes_each_profile(name: str) -> None:
    profile = yaml.safe_load((CHART / f"values-{name}.yaml").read_text())
    assert not refused(profile)
    Chart.model_validate(profile)


def test_unknown_keys_are_refused_at_every_depth() -> None:
    found = list(closed(SCHEMA))
    assert len(found) > 60
    assert [place for place, node in found if node.get("additionalProperties") is not False] == []
    for place in (one for one, _ in found if one and "[]" not in one and one[:2] != ("jobs", "settings")):
        values: dict[str, Any] = {"unknown": 1}
        for name in reversed(place):
            values = {name: values}
        assert refused(values), place


def test_every_value_says_what_it_is_for() -> None:
    lines = (CHART.parents[1] / "docs/helm.md").read_text().splitlines()
    rows = {line.split("`")[1]: line.rsplit("|", 2)[1].strip() for line in lines if line.startswith("| `")}
    groups = {
        "control.resources",
        "gateway.resources",
        "triton.resources",
        "backup.resources",
        "postgresql.resources",
        "nats.resources",
        "objects.resources",
    }
    assert {name for name, said in rows.items() if not said} <= groups
    assert {one.split(".")[0] for one in rows} == DEFAULTS.keys()


def test_what_a_former_chart_knew_reaches_the_templates_which_name_the_new_key() -> None:
    for name in LEFT:
        assert name not in DEFAULTS
        assert not refused({name: {"repository": "eyas"}})
