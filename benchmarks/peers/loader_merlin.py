"""Merlin's loader on this CPU: `python loader_merlin.py tf|tf-flat|torch|torch-flat ...`; flat: without the column of lists.

A partition is a row group, and as many are shuffled together as the pool holds. The genres are said to be ragged, the columns' kinds by
tags, as its examples do; types are inferred from the files.
"""

from __future__ import annotations

import os
import sys
import warnings

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
warnings.filterwarnings("ignore")
import numpy as np  # noqa: E402
import pyarrow.parquet as pq  # noqa: E402
from loader_run import asked, run  # noqa: E402

if len(sys.argv) > 1 and sys.argv[1].startswith("torch"):
    from merlin.loader.torch import Loader
else:
    from merlin.loader.tensorflow import Loader
from merlin.io import Dataset  # noqa: E402
from merlin.schema import Schema, Tags  # noqa: E402

_TAGS = {"user": Tags.CATEGORICAL, "item": Tags.CATEGORICAL, "genres": Tags.CATEGORICAL}
_TAGS |= {"rating": Tags.CONTINUOUS, "age": Tags.CONTINUOUS, "label": Tags.TARGET}


def opened(paths, batch, pool, lists):  # type: ignore[no-untyped-def]
    dataset = Dataset(paths, engine="parquet", row_groups_per_part=1, cpu=True)
    columns = [dataset.schema[name].with_tags([tag]) for name, tag in _TAGS.items() if lists or name != "genres"]
    dataset.schema = Schema(columns)
    group = pq.ParquetFile(paths[0]).metadata.row_group(0).num_rows
    return Loader(dataset, batch_size=batch, shuffle=True, parts_per_chunk=max(1, pool // group))


def arrays(batch):  # type: ignore[no-untyped-def]
    columns, label = batch
    if not said.check:
        return {"user": columns["user"].numpy().ravel()}
    found = {name: value.numpy().ravel() for name, value in columns.items() if "__" not in name} | {"label": label.numpy().ravel()}
    if "genres__values" in columns:
        found |= {"genres": columns["genres__values"].numpy(), "lengths": np.diff(columns["genres__offsets"].numpy())}
    return found


if __name__ == "__main__":
    said = asked()
    run(said, lambda: iter(opened(said.files("*.parquet"), said.batch, said.pool, "flat" not in said.what)), arrays)
    sys.stdout.flush()
    os._exit(0)  # its thread reads on after a part of an epoch: Python's own end under it aborts now and then
