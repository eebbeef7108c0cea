"""JSON schema of the spec for editors: completion, hover and diagnostics of yaml-language-server.

The contracts' own schema, which is part of the API's, lists alternatives as unions. For a union a language server offers the fields of all
alternatives at once, so each union becomes a choice (`if`, `then`, `else`) by the field that decides: the family or the preset of `params`,
and the first required field of a list's entry.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from shared.contracts.families import FAMILIES, OWN, FamilyParams
from shared.contracts.presets import PRESETS
from shared.contracts.spec import RecommenderSpec

SCHEMA_FILE = "spec.schema.json"
FIRST_LINE = f"# yaml-language-server: $schema={SCHEMA_FILE}"
"""First line of a spec with the schema in the same folder."""
_BOUNDS = {"ge": "minimum", "gt": "exclusiveMinimum", "le": "maximum", "lt": "exclusiveMaximum"}
_OF_NUMBERS = ("type", *_BOUNDS.values())
Json = dict[str, Any]


def editor_schema() -> Json:
    document = RecommenderSpec.json_schema()
    schemas = list(_schemas(document))
    for schema in schemas:
        _simplify(schema)
    for union, kinds in [(schema, kinds) for schema in schemas if (kinds := _kinds(schema, document))]:
        inline = [choice for choice in union.pop("anyOf") if "$ref" not in choice]
        union.update(_choice(kinds, inline, document))
    model = document["$defs"]["Model"]
    fields = model["properties"]
    params = {"type": "object", "description": fields["params"]["description"]}
    fields |= {"family": _family(fields["family"]), "preset": _preset(fields["preset"]), "params": params}
    model["allOf"] = [_params(name, kind, params) for name, kind in FAMILIES.items()]
    return {"$schema": "http://json-schema.org/draft-07/schema#", **document}


def _schemas(schema: Json) -> Iterator[Json]:
    """Yields a schema and all schemas in it."""
    yield schema
    inner = [each for keyword in ("properties", "patternProperties", "$defs") for each in schema.get(keyword, {}).values()]
    inner += [
        *schema.get("anyOf", ()),
        *schema.get("oneOf", ()),
        *(schema[keyword] for keyword in ("items", "additionalProperties") if schema.get(keyword)),
    ]
    for each in inner:
        yield from _schemas(each)


def _simplify(schema: Json) -> None:
    """Adapts one schema: without class names; defaults in the description, since an editor would write them out."""
    schema.pop("title", None)
    if "oneOf" in schema:  # of which an editor completes only the name
        schema["anyOf"] = schema.pop("oneOf")
    default = schema.pop("default", None)
    if "description" in schema:
        simple = default not in (None, [], {}) and not isinstance(default, dict)
        _describe(schema, schema["description"], f"Default: `{json.dumps(default)}`." if simple else "")
        if schema.get("type") in ("integer", "number"):  # an editor would write 0 for a plain number
            schema["anyOf"] = [{keyword: schema.pop(keyword) for keyword in _OF_NUMBERS if keyword in schema}]
    bounds = {_BOUNDS[name]: schema.pop(name) for name in _BOUNDS if name in schema}
    for number in (choice for choice in (schema, *schema.get("anyOf", ())) if choice.get("type") == "number"):
        number.update(bounds)
    if schema.get("format") == "date-time":  # YAML also allows a blank before the time
        del schema["format"]
        schema.update(pattern=r"^\d{4}-\d\d?-\d\d?(?:[Tt]|\s+)\d", examples=["2026-12-01T00:00:00+01:00"])
    if "pattern" in schema and "examples" in schema:
        schema["patternErrorMessage"] = f"Expected text such as {', '.join(map(str, schema['examples']))}."


def _describe(schema: Json, *texts: str) -> None:
    text = " ".join(" ".join(texts).split())
    schema["description"] = text
    if re.search(r"[`*_<>\[\]]", text):
        schema["markdownDescription"] = text


def _target(reference: str, document: Json) -> Json:
    definition: Json = document["$defs"][reference.rpartition("/")[2]]
    return definition


def _kinds(schema: Json, document: Json) -> dict[str, str]:
    """Returns the alternatives of a union by the field that decides; empty if there is only one, or one without such a field."""
    references = [choice["$ref"] for choice in schema.get("anyOf", ()) if "$ref" in choice]
    required = [_target(reference, document).get("required", [""])[0] for reference in references]
    return dict(zip(required, references, strict=True)) if len(references) > 1 and all(required) else {}


def _choice(kinds: Mapping[str, str], inline: list[Json], document: Json) -> Json:
    """Returns the schema of an entry: of its kind by the field that it has, or with one of these fields."""
    fields = {}
    for field, reference in kinds.items():
        definition = _target(reference, document)
        fields[field] = definition["properties"][field]
        if about := definition.pop("description", None):
            _describe(fields[field], about, fields[field]["description"])
    choice: Json = {"type": "object", "properties": fields, "additionalProperties": False, "minProperties": 1}
    for field, reference in kinds.items():
        choice = {"if": {"type": "object", "required": [field]}, "then": {"$ref": reference}, "else": choice}
    for other in inline:
        choice = {"if": {"type": other["type"]}, "then": other, "else": choice}
    return choice


def _names(names: Mapping[str, str]) -> Json:
    return {"enum": list(names), "markdownEnumDescriptions": list(names.values())}


def _family(field: Json) -> Json:
    families = _names({name: kind.meaning for name, kind in FAMILIES.items()})
    return {name: field[name] for name in ("description", "markdownDescription")} | {
        "anyOf": [families, {"type": "string", "pattern": f"^{OWN.pattern}$"}]
    }


def _preset(field: Json) -> Json:
    return field | {
        "anyOf": [_names({name: f"`{preset.family}`, tuned on {preset.about}" for name, preset in PRESETS.items()}), {"type": "null"}]
    }


def _params(name: str, kind: type[FamilyParams], params: Json) -> Json:
    """Returns the rule for the parameters of a family: that of the spec, that of its preset, or the default.

    The condition is negated, because a server offers the properties of a condition as completions.
    """
    presets = [preset for preset, settings in PRESETS.items() if settings.family == name]
    named: list[Json] = [{"required": ["family"], "properties": {"family": {"const": name}}}]
    named += [{"required": ["preset"], "properties": {"preset": {"enum": presets}}}] if presets else []
    named += [{"properties": {"family": False, "preset": False}}] if name == "mlp" else []
    parsed = {"$ref": f"#/$defs/{kind.__name__}", "description": params["description"]}
    return {"if": {"not": {"anyOf": named}}, "else": {"properties": {"params": parsed}}}
