"""torch.utils.data.DataLoader over arrays that lie in memory: `python loader_torch.py by-row|by-batch ... `, workers as in `by-row-2`.

by-row: a dataset's __getitem__ gives one row, and a collate function makes tensors of a list of rows, as most scripts do. by-batch: a
dataset with __getitems__, which DataLoader calls with all indices of a batch; the arrays are gathered at once. Both shuffle all rows. What
reading the arrays takes isn't in the time.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from loader_run import asked, run
from torch.utils.data import DataLoader, Dataset

NUMBERS = ("user", "item", "rating", "age", "label")


class Rows(Dataset):
    def __init__(self, paths):  # type: ignore[no-untyped-def]
        table = pa.concat_tables([pq.read_table(path) for path in paths]).combine_chunks()
        lists = table.column("genres").chunk(0)
        self.offsets = lists.offsets.to_numpy().astype(np.int64)
        self.genres = lists.flatten().to_numpy()
        self.numbers = {name: table.column(name).to_numpy() for name in NUMBERS}

    def __len__(self):  # type: ignore[no-untyped-def]
        return len(self.offsets) - 1

    def __getitem__(self, at):  # type: ignore[no-untyped-def]
        row = {name: column[at] for name, column in self.numbers.items()}
        row["genres"] = self.genres[self.offsets[at] : self.offsets[at + 1]]
        return row


class Batches(Rows):
    def __getitems__(self, ats):  # type: ignore[no-untyped-def]
        order = np.asarray(ats)
        begins = self.offsets.take(order)
        lengths = self.offsets.take(order + 1) - begins
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        places = np.repeat(begins - offsets[:-1], lengths) + np.arange(offsets[-1])
        found = {name: torch.from_numpy(column.take(order)) for name, column in self.numbers.items()}
        return found | {"genres": torch.from_numpy(self.genres.take(places)), "offsets": torch.from_numpy(offsets[:-1])}


def collated(rows):  # type: ignore[no-untyped-def]
    found = {name: torch.from_numpy(np.array([row[name] for row in rows])) for name in NUMBERS}
    lists = [row["genres"] for row in rows]
    offsets = np.concatenate([[0], np.cumsum([len(one) for one in lists])])[:-1]
    return found | {"genres": torch.from_numpy(np.concatenate(lists)), "offsets": torch.from_numpy(offsets)}


def as_it_is(batch):  # type: ignore[no-untyped-def]
    return batch


def arrays(batch):  # type: ignore[no-untyped-def]
    if not said.check:
        return {"user": batch["user"].numpy()}
    found = {name: value.numpy() for name, value in batch.items() if name != "offsets"}
    return found | {"lengths": np.diff(batch["offsets"].numpy(), append=len(found["genres"]))}


class Ending:
    """An iterator whose workers end with it."""

    def __init__(self, loader):  # type: ignore[no-untyped-def]
        self.inner = iter(loader)

    def __iter__(self):  # type: ignore[no-untyped-def]
        return self

    def __next__(self):  # type: ignore[no-untyped-def]
        return next(self.inner)

    def close(self) -> None:
        if hasattr(self.inner, "_shutdown_workers"):
            self.inner._shutdown_workers()


if __name__ == "__main__":
    said = asked()
    way, _, workers = said.what.rpartition("-")
    rows = {"by-row": Rows, "by-batch": Batches}[way](said.files("*.parquet"))
    loader = DataLoader(
        rows,
        said.batch,
        shuffle=True,
        num_workers=int(workers),
        collate_fn=collated if way == "by-row" else as_it_is,
        generator=torch.Generator().manual_seed(0),
    )
    run(said, lambda: Ending(loader), arrays)
