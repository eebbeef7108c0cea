"""Columns of the items table as attributes: the record for export, and the check of the attributes that the spec's filters name."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import polars as pl

from pipelines.data.ids import text_of
from pipelines.export.attributes import attribute_columns
from pipelines.stages.runner import Context
from shared.contracts.attribute_names import unknown_attributes, wrong_kinds
from shared.contracts.items_table import ITEMS_TABLE, ItemsTable
from shared.domain.errors import Invalid


def recorded(context: Context, items: pl.DataFrame, at: datetime) -> ItemsTable:
    """Returns the record of the table as of `at`; refuses a spec that names an attribute which neither the table nor the catalogue has."""
    spec, key = context.spec.recommender, context.spec.recommender.schema_.item
    kinds = attribute_columns(items, key, {}).kinds
    attributes, catalogue = tuple(kinds), context.spec.attributes
    for field, message in wrong_kinds(spec.serve, kinds):
        raise Invalid(f"{field}: {message}; declare other kinds in serve.attributes, or change the filter")
    for field, message in unknown_attributes(spec.serve, {*attributes, *(catalogue or ())}):
        if catalogue is not None:
            raise Invalid(f"{field}: {message}; add a column of this name to the items table, or declare it in serve.attributes")
        context.log.warning("attributes: unknown to the items table field=%s error=%s", field, message)
    return ItemsTable(at=at, columns=tuple(name for name in items.columns if name not in (key, text_of(key))), attributes=attributes)


def written_record(context: Context, record: ItemsTable) -> Path:
    path = context.out(ITEMS_TABLE)
    path.write_text(record.model_dump_json(indent=1))
    return path
