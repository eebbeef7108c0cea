"""The items table and the catalogue: what etl records of the table, the seed of the catalogue that export publishes, and how a version
reads an item that only the catalogue has.

A seed is `attributes.json` and its parts, gzip'd JSON lines in the order of keys: `{"item": 1, "attributes": {"price": 3.5}}`, with an
`id` if ids are text. A value of null is unknown.
"""

from __future__ import annotations

import gzip
import io
import json
import zlib
from collections.abc import Iterator, Mapping

from pydantic import AwareDatetime, Field

from shared.contracts.stage import Files
from shared.contracts.strict import Strict
from shared.domain.attributes import Value, check_attributes
from shared.domain.errors import Invalid

ITEMS_TABLE = "items_table.json"
FACT = "items_table"
"""Name of the same record among etl's facts."""
SEED = "attributes.json"
NEW_ITEMS = "new_items.json"
_PARTS = "attributes-"


class ItemsTable(Strict):
    """Record of an items table that etl has read."""

    at: AwareDatetime = Field(description="Time of the table: when its files last changed, at most the start of the stage.")
    columns: tuple[str, ...] = Field(description="Columns of the table, without the key.")
    attributes: tuple[str, ...] = Field(description="Columns that become attributes if none are declared.")


class Seed(Strict):
    """Attributes of the items table as published with a version."""

    at: AwareDatetime = Field(description="Time of the table.")
    items: int = Field(ge=0)
    names: tuple[str, ...] = Field(description="Names of the attributes.")
    parts: tuple[str, ...] = Field(description="Files with the items, in order.")


class AttributeInput(Strict):
    """An item input of a version whose value for a new item is an attribute of the catalogue."""

    input: str
    attribute: str
    separator: str | None = Field(None, description="Separates the values of a list in a text.")


class NewItems(Strict):
    """How a version reads items that the catalogue got after the version's items table."""

    since: AwareDatetime = Field(description="Items that were created earlier and that the version lacks are not new, but removed.")
    inputs: tuple[AttributeInput, ...] = ()
    unknown: tuple[str, ...] = Field((), description="Item inputs that are unknown for a new item.")


def part_name(number: int) -> str:
    return f"{_PARTS}{number:05}.ndjson.gz"


def seed_files(files: Files) -> Files:
    return {name: file for name, file in files.items() if name == SEED or name.startswith(_PARTS)}


def read_part(content: bytes) -> Iterator[tuple[int, str | None, Mapping[str, Value]]]:
    """Yields the key, the text id and the known attributes of each item. Raises Invalid for other content."""
    try:
        with gzip.open(io.BytesIO(content), "rt", encoding="utf-8") as lines:
            for line in lines:
                row = json.loads(line)
                attributes = check_attributes(row["attributes"], {})
                yield int(row["item"]), row.get("id"), {name: value for name, value in attributes.items() if value is not None}
    except (OSError, EOFError, zlib.error, ValueError, KeyError, TypeError) as error:
        raise Invalid(f"not a part of a seed: {error}") from None
