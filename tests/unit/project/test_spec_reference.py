"""docs/spec.md: a section with a valid example for each block, family and operator, and each field once."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest
import yaml

from docs.pages import read
from docs.spec_reference import EXAMPLES, reference
from docs.yaml_blocks import spec_of
from shared.contracts.families import FAMILIES
from shared.contracts.features import OPERATORS
from shared.contracts.spec import RecommenderSpec, parse_spec
from shared.contracts.yaml12 import load

ROOT = Path(__file__).parents[3]
TEXT = reference()
BLOCKS = [field.alias or name for name, field in RecommenderSpec.model_fields.items() if name not in ("api_version", "name")]
SECTIONS = [*BLOCKS, *(f"family-{name}" for name in FAMILIES), *(f"operator-{name}" for name in OPERATORS)]
ROW = re.compile(r"^\| `([^`]+)` \| (.*?) \| (.*?) \| (.*) \|$", re.MULTILINE)


def parts() -> dict[str, str]:
    """The text of each section, by anchor."""
    anchors = [heading.anchor for heading in read("spec.md", TEXT).headings]
    return dict(zip(anchors, re.split(r"^#{1,3} .*\n", TEXT, flags=re.MULTILINE)[1:], strict=True))


def test_each_block_family_and_operator_has_a_section_with_a_description_and_an_example() -> None:
    sections = parts()
    for anchor in SECTIONS:
        description, *tables = [text for text in sections[anchor].split("\n\n") if text.strip()]
        assert re.match(r"[A-Z].*\.$", description.strip(), re.DOTALL), anchor
        assert tables[0] == f"```yaml part-of-a-spec.yaml\n{EXAMPLES[anchor]}```", anchor
    assert sections.keys() >= EXAMPLES.keys()


@pytest.mark.parametrize("anchor", EXAMPLES)
def test_each_example_is_valid_and_shows_its_section(anchor: str) -> None:
    value = load(EXAMPLES[anchor], anchor)
    spec = parse_spec(yaml.safe_dump(spec_of("part-of-a-spec.yaml", value)))
    kind, _, name = anchor.partition("-")
    if kind == "family":
        assert spec.model.family == name
    elif kind == "operator":
        assert name in {field for operator in spec.features for field in type(operator).model_fields}
    else:
        assert kind in value


def test_no_row_is_in_it_twice() -> None:
    rows = Counter(ROW.findall(TEXT))
    assert len(rows) > 300
    assert [row for row, count in rows.items() if count > 1] == []


def test_it_has_each_field_of_each_part_of_the_spec() -> None:
    named = {name.rpartition(".")[2].removesuffix("[]") for name, *_ in ROW.findall(TEXT)}
    fields = {name for part in RecommenderSpec.json_schema()["$defs"].values() for name in part.get("properties", {})}
    assert fields <= named
    own = parts()
    for family, kind in FAMILIES.items():
        assert all(f"`{name}`" in own[f"family-{family}"] for name in kind.model_fields), family


def test_its_types_are_plain_words() -> None:
    for name, kind, *_ in ROW.findall(TEXT):
        assert not re.search(r"\b(?:anyOf|object|string|integer|boolean|null|array)\b", re.sub("`.*?`", "", kind)), (name, kind)
        assert kind, name


def test_the_fields_of_several_families_are_in_one_section_that_the_families_name() -> None:
    sections = parts()
    shared = {name for name, *_ in ROW.findall(sections["parameters-of-several-families"])}
    assert {"layers", "pooling", "dropout", "negatives"} <= shared
    assert "(#parameters-of-several-families): `pooling`, `dropout`, `layer_norm`, `unknown_items`." in sections["family-two_tower"]
    assert "has only `seed`." in sections["family-ease"]
    assert "defaults: `epochs: auto`, `learning_rate: 0.001`." in sections["family-session"]
