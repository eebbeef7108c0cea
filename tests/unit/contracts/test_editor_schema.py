"""The schema for editors accepts what the parser accepts. With the real server: tests/platform/test_editor.py."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest

from docs.yaml_blocks import spec_of
from shared.contracts.editor_schema import editor_schema
from shared.contracts.families import FAMILIES
from shared.contracts.presets import PRESETS
from shared.contracts.spec import RecommenderSpec
from shared.contracts.strict import read
from shared.contracts.yaml12 import load
from shared.domain.errors import EyasError
from tests.support.short_forms import SHORT_FORMS

SCHEMA = editor_schema()


def spec(part: str) -> Any:
    return spec_of("part-of-a-spec.yaml", load(part, "part"))


def accepts(value: Any) -> bool:
    return jsonschema.Draft7Validator(SCHEMA).is_valid(value)


def test_it_is_a_valid_schema() -> None:
    jsonschema.Draft7Validator.check_schema(SCHEMA)


@pytest.mark.parametrize("part", SHORT_FORMS)
def test_it_accepts_what_the_parser_accepts(part: str) -> None:
    value = spec_of("part-of-a-spec.yaml", load(part, "part"))
    read(RecommenderSpec, value, "part")
    jsonschema.validate(json.loads(json.dumps(value, default=str)), SCHEMA)  # an editor reads a time as text


@pytest.mark.parametrize(
    "part",
    [
        "model: {family: eas}",
        "model: {family: ease, params: {width: 3}}",
        "model: {preset: ml-1m-ease, params: {width: 3}}",
        "model: {params: {trees: 3}}",
        "model: {train: {epochs: 0}}",
        "features: [{log: age, clip: age, min: 3}]",
        "features: [{}]",
        "features: [{categorify: []}]",
        "gates: [{metric: hr@10, better_than: popularty}]",
        "gates: [{confidence: 90%}]",
        "serve: {filter: [{not_seen: 30 days}]}",
        "data: {interactions: {uri: a.csv, since: a day}}",
        "data: {validate: {bad_rows: {warn: -1}}}",
        "split: {test: 1.5}",
        "serve: {order: {campaigns: [{name: a, from: tomorrow, until: 2026-12-24T00:00:00+01:00, rules: [{pin: 3}]}]}}",
    ],
)
def test_it_rejects_what_the_parser_rejects(part: str) -> None:
    with pytest.raises(EyasError):
        read(RecommenderSpec, spec(part), "part")
    assert not accepts(spec(part))


def test_each_family_and_preset_has_its_own_parameters() -> None:
    for name, kind in FAMILIES.items():
        presets = [preset for preset, settings in PRESETS.items() if settings.family == name]
        for field in {field for other in FAMILIES.values() for field in other.model_fields}:
            default = kind.model_fields[field].default if field in kind.model_fields else 1
            params = {field: list(default) if isinstance(default, tuple) else default}
            for model in ({"family": name}, *({"preset": preset} for preset in presets)):
                value = {**spec("{}"), "model": model | {"params": params}}
                assert accepts(value) is (field in kind.model_fields), (model, field)
