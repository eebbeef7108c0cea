"""Check of what a spec's filters and rules name: items by their ids, and attributes by the columns of the items table and the catalogue."""

from __future__ import annotations

from collections.abc import Collection
from datetime import timedelta

from services.api.dependencies import ControlParts
from services.api.ids import check_pins
from shared.contracts.attribute_names import unknown_attributes
from shared.contracts.items_table import FACT, ItemsTable
from shared.contracts.spec import RecommenderSpec
from shared.contracts.strict import read
from shared.domain.errors import EyasError, Invalid

_RUNS = 20
"""Newest runs among which one with the same items table is looked for."""
_ROUNDING = timedelta(seconds=1)


def check_names(parts: ControlParts, spec: RecommenderSpec, reads_files: bool = True) -> list[str]:
    """Rejects pinned ids of another kind, and unknown attributes if the columns of the items table are known; else returns a warning for
    each. Without `reads_files` only runs tell the columns."""
    check_pins(parts, spec)
    catalogue = parts.catalogue.names(spec.name)
    if not unknown_attributes(spec.serve, catalogue):
        return []
    columns: Collection[str] | None = _header(parts, spec) if reads_files else None
    if columns is None:
        columns = _recorded(parts, spec)
    faults = unknown_attributes(spec.serve, {*catalogue, *(columns or ())} - {spec.items_table().key})
    if not faults:
        return []
    if columns is None:
        return [f"{field}: {message}; the columns of the items table are not known yet: the run checks them" for field, message in faults]
    hint = "add a column of this name to the items table, write it to the catalogue, or declare it in serve.attributes"
    refused = Invalid("; ".join(f"{field}: {message}; {hint}" for field, message in faults))
    refused.faults = faults
    raise refused


def _header(parts: ControlParts, spec: RecommenderSpec) -> Collection[str] | None:
    """Returns the columns of the items table; none without a table, None if they cannot be read cheaply."""
    return () if spec.data.items is None else parts.table_header(spec.data.items)


def _recorded(parts: ControlParts, spec: RecommenderSpec) -> Collection[str] | None:
    """Returns the attributes of the items table as the newest run with this table has read it; None if it has changed since."""
    table = spec.document()["data"]["items"]
    for run in parts.runs.list(spec.name, limit=_RUNS):
        attempt = next((done.attempt for done in run.status.stages if done.stage == "etl"), None)
        if attempt is None or run.spec.document["data"]["items"] != table:
            continue
        try:
            manifest = parts.artifacts.manifest(attempt)
            fact = manifest.facts.get(FACT) if manifest is not None else None
            record = read(ItemsTable, fact, f"{FACT} of {attempt}") if fact is not None else None
        except (EyasError, OSError, ValueError):  # the check is repeated by the run
            return None
        changed_at = parts.table_changed_at(spec.items_table())
        is_current = record is not None and changed_at is not None and changed_at <= record.at + _ROUNDING
        return record.attributes if record is not None and is_current else None
    return None
