"""The ETL benchmark's work in NVTabular, as its guides teach it: `python etl_nvtabular.py ROWS.parquet FOLDER [WORKERS]`.

Lags need the rows partitioned by user and sorted by time, so they are shuffled first. Its HashedCross takes no lists, so the cross is a
function of ours. Folds are its own, by chance. With WORKERS a Dask cluster of so many processes computes, else this process alone.
"""

from __future__ import annotations

import json
import sys
import time
import warnings
from pathlib import Path

warnings.filterwarnings("ignore")
import numpy as np  # noqa: E402
import nvtabular as nvt  # noqa: E402
import pandas as pd  # noqa: E402
import pyarrow as pa  # noqa: E402
from merlin.core.dispatch import flatten_list_column_values  # noqa: E402
from nvtabular import ops  # noqa: E402

BUCKETS, DAY, PART = 10_000, 86_400, "64MB"
PRIME = 2**31 - 1


def crossed(genres, frame):  # type: ignore[no-untyped-def]
    if genres.name == "timestamp":  # it is handed what it only depends on, too
        return genres
    lengths = np.fromiter(map(len, genres), np.int64, len(genres))
    hours = np.repeat(frame["timestamp"].to_numpy() // 3600 % 24, lengths)
    mixed = (flatten_list_column_values(genres).to_numpy().astype(np.int64) * 64 + hours) * 1_103_515_245 % PRIME % BUCKETS
    lists = np.split(mixed.astype(np.int32), np.cumsum(lengths)[:-1]) if len(genres) else []
    return pd.Series(lists, genres.index, dtype=object)


def wave(of, length, added):  # type: ignore[no-untyped-def]
    return lambda column: of((column % length + added) % length * (2 * np.pi / length)).astype("float32")


def graph(folder: Path):  # type: ignore[no-untyped-def]
    label = ["rating"] >> ops.LambdaOp(lambda column: (column >= 4).astype("int8")) >> ops.Rename(name="label")
    ids = ["userId", "movieId"] >> ops.Categorify(out_path=str(folder / "ids"), dtype="int32") >> ops.Rename(postfix="_code")
    genres = ["genres"] >> ops.Categorify(out_path=str(folder / "genres"), dtype="int32")
    encoded = ["movieId"] >> ops.TargetEncoding(label, kfold=5, p_smooth=20, out_path=str(folder / "target"), out_dtype="float32")
    counts = ["userId"] >> ops.JoinGroupby(cont_cols=["timestamp"], stats=["count"], out_path=str(folder / "counts"))
    lag = ["timestamp"] >> ops.DifferenceLag("userId") >> ops.FillMissing(0)
    cross = genres >> ops.LambdaOp(crossed, dependency=["timestamp"], dtype="int32") >> ops.Rename(postfix="_x_hour")
    waves = [
        ["timestamp"] >> ops.LambdaOp(wave(of, length, added), dtype="float32") >> ops.Rename(postfix=f"_{name}_{of.__name__}")
        for name, length, added in (("day", DAY, 0), ("week", 7 * DAY, 3 * DAY))
        for of in (np.sin, np.cos)
    ]
    return ids + genres + encoded + counts + lag + cross + sum(waves[1:], waves[0]) + label + ["timestamp"]


def main() -> None:
    rows, folder, workers = sys.argv[1], Path(sys.argv[2]), int((sys.argv[3:] or ["0"])[0])
    began = time.monotonic()
    client = None
    if workers:
        from dask.distributed import Client

        client = Client(n_workers=workers, threads_per_worker=1, local_directory=str(folder / "dask"), dashboard_address=None)
    parts = nvt.Dataset(rows, engine="parquet", part_size=PART).shuffle_by_keys(["userId"]).to_ddf()
    parts = parts.map_partitions(lambda part: part.sort_values(["userId", "timestamp"], ignore_index=True))
    parts.to_parquet(
        str(folder / "sorted"), write_index=False, schema={"genres": pa.list_(pa.string())}
    )  # else every pass would shuffle anew
    dataset = nvt.Dataset(str(folder / "sorted"), engine="parquet", part_size=PART)
    shuffled = time.monotonic()
    workflow = nvt.Workflow(graph(folder))
    workflow.fit(dataset)
    fitted = time.monotonic()
    workflow.transform(dataset).to_parquet(str(folder / "rows"))
    if client is not None:
        client.close()
    ended = time.monotonic()
    parts = {"shuffle": shuffled - began, "fit": fitted - shuffled, "transform": ended - fitted}
    sys.stdout.write(json.dumps({"seconds": ended - began, "parts": parts}) + "\n")


if __name__ == "__main__":
    main()
