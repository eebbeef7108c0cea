"""Rows whose lists, codes and labels follow from their number, and what tensors of them say."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

LONGEST = 4


def write(folder: Path, rows: int, group: int = 50) -> Path:
    ids = np.arange(rows)
    lists = pa.array([_list(one) for one in range(rows)], pa.list_(pa.int32()))
    weight = (ids / 2).astype(np.float32)
    table = pa.table(
        {"id": ids, "code": (ids % 7).astype(np.int32), "weight": weight, "some": lists, "label": (ids % 3 == 0).astype(np.float32)}
    )
    pq.write_table(table, folder / "rows.parquet", row_group_size=group)
    return folder / "rows.parquet"


def _list(number: int) -> list[int]:
    return [number * 10 + at for at in range(number % (LONGEST + 1))]


def seen(batch: tuple[dict[str, Any], Any]) -> list[int]:
    """The rows of a batch of offsets, each with what belongs to it."""
    columns, label = batch
    ids = columns["id"].tolist()
    ends = [*columns["some__offsets"].tolist()[: len(ids)], len(columns["some__values"])]
    values = columns["some__values"].tolist()
    assert [values[a:b] for a, b in pairwise(ends)] == [_list(one) for one in ids]
    assert columns["code"].tolist() == [one % 7 for one in ids]
    assert columns["weight"].tolist() == [one / 2 for one in ids]
    assert label.tolist() == [float(one % 3 == 0) for one in ids]
    return ids


def epoch(batches: Any) -> list[list[int]]:
    return [seen(batch) for batch in batches]
