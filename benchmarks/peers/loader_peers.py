"""Loaders of TensorFlow, torch and Merlin, and limits: `python loader_peers.py CONTENDER ...` (see loader_run). Imports only its library.

tensorflow-windowed: tf.data.experimental.make_batched_features_dataset, an Example a row, which it shuffles, batches and then parses
together, two threads each for reading and parsing. tensorflow-per-item: Examples shuffled, each parsed by itself, and batched with lists
padded to the longest, all calls in parallel by AUTOTUNE. tensorflow-pre-batched: a record is a whole batch, whose rows were put together
when the file was written; records are shuffled.

torch-by-row-N, torch-by-batch-N: torch.utils.data.DataLoader with N workers over arrays in memory. By row: a dataset's __getitem__ returns
one row, and a collate function makes tensors of a list of rows, as most scripts do. By batch: __getitems__ gets all indices of a batch and
gathers the arrays at once. Both shuffle all rows. Reading the arrays is not timed.

merlin-tf, merlin-torch, each also with -flat (without the column of lists): a partition is a row group, and as many are shuffled together
as the pool holds. Columns have tags, as in its examples; types are inferred from the files.

arrow-iter_batches, arrow-read_row_group, arrow-to_batches: plain pyarrow, unshuffled. arrow-memcpy: copies the same bytes.
"""

from __future__ import annotations

import importlib
import os
import sys
import warnings

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
warnings.filterwarnings("ignore")
import numpy as np  # noqa: E402
import pyarrow as pa  # noqa: E402
import pyarrow.dataset  # noqa: E402
import pyarrow.parquet as pq  # noqa: E402
from loader_run import read_request, run  # noqa: E402

NUMBERS = ("user", "item", "rating", "age", "label")
LIBRARIES = {"tensorflow": "tensorflow", "torch": "torch.utils.data", "merlin-tf": "merlin.loader.tensorflow"}
LIBRARIES |= {"merlin-torch": "merlin.loader.torch", "arrow": "pyarrow"}


def tensorflow_windowed(files, batch, pool, epochs=1):  # type: ignore[no-untyped-def]
    import tensorflow as tf

    return tf.data.experimental.make_batched_features_dataset(
        files,
        batch,
        _example(tf.io.FixedLenFeature, []),
        num_epochs=epochs,
        shuffle_buffer_size=pool,
        reader_num_threads=2,
        parser_num_threads=2,
        prefetch_buffer_size=tf.data.AUTOTUNE,
        sloppy_ordering=True,
    )


def _example(kind, *shape):  # type: ignore[no-untyped-def]
    import tensorflow as tf

    columns = {name: kind(*shape, dtype=tf.int64 if name in ("user", "item") else tf.float32) for name in NUMBERS}
    return columns | {"genres": tf.io.RaggedFeature(tf.int64)}


def _parsed(files, pool, columns, batched=lambda records: records):  # type: ignore[no-untyped-def]
    import tensorflow as tf

    parallel = {"num_parallel_calls": tf.data.AUTOTUNE, "deterministic": False}
    records = tf.data.Dataset.from_tensor_slices(files).shuffle(len(files)).interleave(tf.data.TFRecordDataset, **parallel).shuffle(pool)
    return batched(records.map(lambda record: tf.io.parse_single_example(record, columns), **parallel)).prefetch(tf.data.AUTOTUNE)


def open_tensorflow(request):  # type: ignore[no-untyped-def]
    import tensorflow as tf

    kind = request.contender.removeprefix("tensorflow-")
    files = request.files("*.batches.tfrecord" if kind == "pre-batched" else "*.single.tfrecord")
    tf.constant(0).numpy()

    def epoch():  # type: ignore[no-untyped-def]
        if kind == "windowed":
            return iter(tensorflow_windowed(files, request.batch, request.pool))
        if kind == "per-item":
            columns = _example(tf.io.FixedLenFeature, [])
            return iter(_parsed(files, request.pool, columns, lambda records: records.padded_batch(request.batch)))
        columns = _example(tf.io.RaggedFeature) | {"lengths": tf.io.RaggedFeature(tf.int64)}
        return iter(_parsed(files, max(1, request.pool // request.batch), columns))

    def arrays(batch):  # type: ignore[no-untyped-def]
        if not request.check:
            return {"user": batch["user"].numpy()}
        lists = batch["genres"]
        columns = {name: value.numpy() for name, value in batch.items() if name != "genres"}
        if isinstance(lists, tf.RaggedTensor):
            return columns | {"genres": lists.values.numpy(), "lengths": np.diff(lists.row_splits.numpy())}
        padded = lists.numpy()  # with zeros, that are no genre
        return columns | {"genres": padded[padded > 0]} | ({"lengths": (padded > 0).sum(axis=1)} if kind == "per-item" else {})

    return epoch, arrays


def read_arrays(files):  # type: ignore[no-untyped-def]
    """Returns columns, and values and offsets of the lists."""
    table = pa.concat_tables([pq.read_table(path) for path in files]).combine_chunks()
    lists = table.column("genres").chunk(0)
    return {name: table.column(name).to_numpy() for name in NUMBERS}, lists.flatten().to_numpy(), lists.offsets.to_numpy().astype(np.int64)


class Rows:
    """A dataset of torch."""

    def __init__(self, files):  # type: ignore[no-untyped-def]
        self.numbers, self.genres, self.offsets = read_arrays(files)

    def __len__(self):  # type: ignore[no-untyped-def]
        return len(self.offsets) - 1

    def __getitem__(self, at):  # type: ignore[no-untyped-def]
        row = {name: column[at] for name, column in self.numbers.items()}
        row["genres"] = self.genres[self.offsets[at] : self.offsets[at + 1]]
        return row

    @staticmethod
    def collate(rows):  # type: ignore[no-untyped-def]
        import torch

        batch = {name: torch.from_numpy(np.array([row[name] for row in rows])) for name in NUMBERS}
        lists = [row["genres"] for row in rows]
        offsets = np.concatenate([[0], np.cumsum([len(values) for values in lists])])[:-1]
        return batch | {"genres": torch.from_numpy(np.concatenate(lists)), "offsets": torch.from_numpy(offsets)}


class Batches(Rows):
    def __getitems__(self, rows):  # type: ignore[no-untyped-def]
        import torch

        order = np.asarray(rows)
        starts = self.offsets.take(order)
        lengths = self.offsets.take(order + 1) - starts
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        places = np.repeat(starts - offsets[:-1], lengths) + np.arange(offsets[-1])
        batch = {name: torch.from_numpy(column.take(order)) for name, column in self.numbers.items()}
        return batch | {"genres": torch.from_numpy(self.genres.take(places)), "offsets": torch.from_numpy(offsets[:-1])}

    @staticmethod
    def collate(batch):  # type: ignore[no-untyped-def]
        return batch


def open_torch(request):  # type: ignore[no-untyped-def]
    import torch
    from torch.utils.data import DataLoader

    kind, _, workers = request.contender.removeprefix("torch-").rpartition("-")
    rows = {"by-row": Rows, "by-batch": Batches}[kind](request.files())
    options = {"num_workers": int(workers), "collate_fn": rows.collate, "generator": torch.Generator().manual_seed(0)}
    loader = DataLoader(rows, request.batch, shuffle=True, **options)

    class Epoch:
        """An iterator whose workers end with it."""

        def __init__(self) -> None:
            self.inner = iter(loader)

        def __iter__(self):  # type: ignore[no-untyped-def]
            return self.inner

        def close(self) -> None:
            if hasattr(self.inner, "_shutdown_workers"):
                self.inner._shutdown_workers()

    def arrays(batch):  # type: ignore[no-untyped-def]
        if not request.check:
            return {"user": batch["user"].numpy()}
        columns = {name: value.numpy() for name, value in batch.items() if name != "offsets"}
        return columns | {"lengths": np.diff(batch["offsets"].numpy(), append=len(columns["genres"]))}

    return Epoch, arrays


def merlin_loader(loader, files, batch, pool, lists=True):  # type: ignore[no-untyped-def]
    from merlin.io import Dataset
    from merlin.schema import Schema, Tags

    tags = dict.fromkeys(("user", "item", "genres"), Tags.CATEGORICAL)
    tags |= {"rating": Tags.CONTINUOUS, "age": Tags.CONTINUOUS, "label": Tags.TARGET}
    dataset = Dataset(files, engine="parquet", row_groups_per_part=1, cpu=True)
    dataset.schema = Schema([dataset.schema[name].with_tags([tag]) for name, tag in tags.items() if lists or name != "genres"])
    group = pq.ParquetFile(files[0]).metadata.row_group(0).num_rows
    return loader(dataset, batch_size=batch, shuffle=True, parts_per_chunk=max(1, pool // group))


def open_merlin(request):  # type: ignore[no-untyped-def]
    loader = importlib.import_module(LIBRARIES[request.contender.removesuffix("-flat")]).Loader

    def arrays(batch):  # type: ignore[no-untyped-def]
        columns, label = batch
        if not request.check:
            return {"user": columns["user"].numpy().ravel()}
        numbers = {name: value.numpy().ravel() for name, value in columns.items() if "__" not in name} | {"label": label.numpy().ravel()}
        if "genres__values" in columns:
            numbers |= {"genres": columns["genres__values"].numpy(), "lengths": np.diff(columns["genres__offsets"].numpy())}
        return numbers

    return lambda: iter(merlin_loader(loader, request.files(), request.batch, request.pool, "-flat" not in request.contender)), arrays


def open_arrow(request):  # type: ignore[no-untyped-def]
    files = request.files()

    def iter_batches():  # type: ignore[no-untyped-def]
        for path in files:
            yield from pq.ParquetFile(path).iter_batches(batch_size=request.batch)

    def read_row_group():  # type: ignore[no-untyped-def]
        for file in map(pq.ParquetFile, files):
            for group in range(file.num_row_groups):
                yield from file.read_row_group(group).to_batches(max_chunksize=request.batch)

    def to_batches():  # type: ignore[no-untyped-def]
        yield from pa.dataset.dataset(files).to_batches(batch_size=request.batch)

    def memcpy():  # type: ignore[no-untyped-def]
        for start in range(0, len(offsets) - 1, request.batch):
            rows = slice(start, start + request.batch)
            lists = slice(offsets[start], offsets[min(start + request.batch, len(offsets) - 1)])
            yield {name: column[rows].copy() for name, column in columns.items()} | {"genres": values[lists].copy()}

    def arrays(batch):  # type: ignore[no-untyped-def]
        if isinstance(batch, dict):
            return batch
        if not request.check:
            return {"user": batch.column("user").to_numpy()}
        lists = batch.column("genres")
        numbers = {name: batch.column(name).to_numpy() for name in NUMBERS}
        return numbers | {"genres": lists.flatten().to_numpy(), "lengths": np.diff(lists.offsets.to_numpy())}

    kind = request.contender.removeprefix("arrow-")
    if kind == "memcpy":
        columns, values, offsets = read_arrays(files)
        columns["lengths"] = np.diff(offsets).astype(np.int32)
    return {"iter_batches": iter_batches, "read_row_group": read_row_group, "to_batches": to_batches, "memcpy": memcpy}[kind], arrays


if __name__ == "__main__":
    prefix = next(name for name in LIBRARIES if sys.argv[1].startswith(name))
    importlib.import_module(LIBRARIES[prefix])
    opened = {"tensorflow": open_tensorflow, "torch": open_torch, "arrow": open_arrow}.get(prefix, open_merlin)
    run(read_request(), opened)
    if opened is open_merlin:
        sys.stdout.flush()
        os._exit(0)  # its thread reads on after a part of an epoch: Python's own end under it aborts now and then
