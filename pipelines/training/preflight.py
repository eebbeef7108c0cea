"""Checks of the training input before anything is built: each fault is a one-line error that says where.

The stages make valid rows; files from elsewhere, or of two different runs, can be invalid.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import polars as pl

from pipelines.features.graph import Graph
from pipelines.features.operators.base import Feature
from pipelines.features.prepared import FEATURE
from pipelines.inputs.tables import Array, FeatureTable
from shared.domain.errors import BadData, Invalid

_MEMINFO = Path("/proc/meminfo")
_COPIES = {"adam": 3, "adagrad": 1, "sgd": 1}
"""Copies of the weights that an optimizer keeps, weights included: 3 with Adam's two moments; row-wise Adagrad keeps only a number per row.
"""


def check_rows(
    graph: Graph, rows: Path, items: FeatureTable, users: FeatureTable | None, negatives: int, warm: bool, missing: bool = False
) -> None:
    """Raises an error for rows that cannot be trained on. `negatives`: whether positives get sampled negatives. `warm`: the rows are only
    the newest. `missing`: whether numbers may be missing."""
    _check_labels(rows, negatives, warm)
    for name, table in (("items", items), ("users", users)):
        if table is not None:
            for feature in graph.features:
                if feature.name in table.columns:
                    _check_column(feature, table.columns[feature.name], f"the {name} table", missing)
    _check_references(graph, rows, len(items), len(users) if users is not None else None)
    _check_moments(rows, tuple(graph.side("context")), missing)


def check_memory(weights: int, optimizer: str, memory: int | None) -> None:
    """Raises Invalid if the weights cannot be trained in the spec's memory, or without one in the machine's free memory."""
    wanted = weights * _COPIES[optimizer]
    there = memory if memory is not None else free_memory()
    if there is None or wanted <= there:
        return
    moments = f", {_COPIES[optimizer]} times that with {optimizer}'s moments" if _COPIES[optimizer] > 1 else ""
    where = "resources.train.memory gives" if memory is not None else "this machine has free"
    raise Invalid(
        f"model.params.width: the weights take {_gb(weights)}{moments}, but {where} {_gb(there)}: choose a smaller width or a larger "
        "min_count, or raise resources.train.memory"
    )


def _check_labels(rows: Path, negatives: int, warm: bool) -> None:
    frame = pl.scan_parquet(rows)
    user = pl.col("user" if "user" in frame.collect_schema() else "user_code")
    figures = frame.select(pl.len(), (pl.col("label") > 0).sum(), user.min().alias("first"), user.max().alias("last"))
    count, positives, first, last = figures.collect(engine="streaming").row(0)
    if not count:
        raise BadData(f"{rows.name}: no rows to train on")
    if not positives:
        raise BadData(f"{rows.name}: none of its {count:,} rows is a positive: check schema.label.positive")
    if positives == count and not negatives:
        raise BadData(
            f"{rows.name}: all of its {count:,} rows are positives: check schema.label.positive, or "
            "sample negatives (model.params.negatives)"
        )
    if first == last and not warm:
        raise BadData(f"{rows.name}: all of its {count:,} rows are of one user: training needs several users")


def _check_column(feature: Feature, values: Array, where: str, missing: bool) -> None:
    if not values.size:
        return
    if feature.kind != "code":
        wrong = np.isinf(values) if missing else ~np.isfinite(values)
        bad = int(wrong.reshape(len(values), -1).any(axis=1).sum())
        if bad:
            raise BadData(f"{where}: feature '{feature.name}' is not finite in {bad:,} of {len(values):,} rows")
        return
    _check_codes(feature, int(values.min()), int(values.max()), where)


def _check_codes(feature: Feature, least: int, most: int, where: str) -> None:
    if least < 0 or most >= (feature.cardinality or 0):
        code = least if least < 0 else most
        raise BadData(
            f"{where}: feature '{feature.name}' has the code {code:,}, but its vocabulary ends at {(feature.cardinality or 0) - 1:,}: the "
            "rows and the features are of different runs"
        )


def _check_references(graph: Graph, rows: Path, items: int, users: int | None) -> None:
    ends = {"item_row": (items, "items table"), "user_row": (users, "users table")}
    there = pl.scan_parquet(rows).collect_schema().names()
    names = [name for name, (end, _) in ends.items() if end is not None and name in there]
    extremes = pl.scan_parquet(rows).select(
        *(pl.col(name).min().alias(f"{name}<") for name in (*names, "user_code")),
        *(pl.col(name).max().alias(f"{name}>") for name in (*names, "user_code")),
    )
    bounds = extremes.collect(engine="streaming").row(0, named=True)
    for name in names:
        end, table = ends[name]
        if bounds[f"{name}<"] < 0 or bounds[f"{name}>"] >= (end or 0):
            raise BadData(
                f"{rows.name}: '{name}' goes up to {bounds[f'{name}>']:,}, but the {table} has {end:,} rows: they are of different runs"
            )
    user = next((feature for feature in graph.features if feature.name == graph.user), None)
    if user is not None:
        _check_codes(user, bounds["user_code<"], bounds["user_code>"], rows.name)


def _check_moments(rows: Path, features: Sequence[Feature], missing: bool) -> None:
    """Checks the features of the moment, which are in the rows themselves."""
    for feature, least, most, bad in _moments(rows, features, missing):
        if bad:
            raise BadData(f"{rows.name}: feature '{feature.name}' is not finite in {bad:,} rows")
        if feature.kind == "code" and least is not None and most is not None:
            _check_codes(feature, int(least), int(most), rows.name)


def _moments(rows: Path, features: Sequence[Feature], missing: bool) -> Iterator[tuple[Feature, float | None, float | None, int]]:
    frame = pl.scan_parquet(rows)
    schema = frame.collect_schema()
    for feature in features:
        name = f"{FEATURE}{feature.name}"
        values = pl.col(name).explode(empty_as_null=False) if schema[name].is_nested() else pl.col(name)
        number = values.cast(pl.Float32)
        bad = pl.lit(0) if feature.kind == "code" else (number.is_infinite() if missing else ~number.is_finite()).sum()
        least, most, count = frame.select(least=values.min(), most=values.max(), bad=bad).collect(engine="streaming").row(0)
        yield feature, least, most, int(count)


def free_memory() -> int | None:
    """Returns the machine's free bytes, or None if unknown."""
    try:
        lines = _MEMINFO.read_text().splitlines()
    except OSError:
        return None
    available = next((line for line in lines if line.startswith("MemAvailable:")), None)
    return int(available.split()[1]) * 1024 if available is not None else None


def _gb(count: int) -> str:
    return f"{count / 1e9:.1f} GB" if count >= 1e8 else f"{count / 1e6:.1f} MB"
