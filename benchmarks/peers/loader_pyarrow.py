"""Limits of the loader benchmark: what plain pyarrow reads, unshuffled, and what copying the same bytes takes.

`python loader_pyarrow.py iter_batches|read_row_group|to_batches|memcpy ...`
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet as pq
from loader_run import VALUES, asked, run

said = asked()
paths = said.files("*.parquet")


def iter_batches():  # type: ignore[no-untyped-def]
    for path in paths:
        yield from pq.ParquetFile(path).iter_batches(batch_size=said.batch)


def read_row_group():  # type: ignore[no-untyped-def]
    for path in paths:
        file = pq.ParquetFile(path)
        for group in range(file.num_row_groups):
            yield from file.read_row_group(group).to_batches(max_chunksize=said.batch)


def to_batches():  # type: ignore[no-untyped-def]
    yield from pa.dataset.dataset(paths).to_batches(batch_size=said.batch)


def memcpy():  # type: ignore[no-untyped-def]
    for start in range(0, len(held["user"]), said.batch):
        rows = slice(start, start + said.batch)
        values = slice(offsets[start], offsets[min(start + said.batch, len(offsets) - 1)])
        yield {name: column[values if name == VALUES else rows].copy() for name, column in held.items()}


def arrays(batch):  # type: ignore[no-untyped-def]
    if isinstance(batch, dict):
        return batch
    found = {name: batch.column(name) for name in batch.schema.names}
    lists = found["genres"]
    if not said.check:
        return {"user": found["user"].to_numpy()}
    numbers = {name: column.to_numpy() for name, column in found.items() if name != "genres"}
    return numbers | {"genres": lists.flatten().to_numpy(), "lengths": np.diff(lists.offsets.to_numpy())}


if said.what == "memcpy":
    table = pa.concat_tables([pq.read_table(path) for path in paths]).combine_chunks()
    lists = table.column("genres").chunk(0)
    offsets = lists.offsets.to_numpy().astype(np.int64)
    held = {name: table.column(name).to_numpy() for name in table.schema.names if name != "genres"}
    held |= {"genres": lists.flatten().to_numpy(), "lengths": np.diff(offsets).astype(np.int32)}
run(said, {"iter_batches": iter_batches, "read_row_group": read_row_group, "to_batches": to_batches, "memcpy": memcpy}[said.what], arrays)
