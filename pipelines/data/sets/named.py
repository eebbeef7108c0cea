"""Named data sets in any published layout: interactions, and tables of items and users if present."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from pipelines.data.sets import criteo, movielens
from shared.domain.errors import BadData, Invalid


@dataclass(frozen=True)
class DataSet:
    name: str
    interactions: pl.LazyFrame
    items: pl.LazyFrame | None = None
    users: pl.LazyFrame | None = None

    def tables(self) -> dict[str, pl.LazyFrame]:
        tables = {"interactions": self.interactions, "items": self.items, "users": self.users}
        return {name: table for name, table in tables.items() if table is not None}


@dataclass(frozen=True)
class DataSetLayout:
    """A layout: its required files and its reader."""

    needs: tuple[str, ...]
    read: Callable[[Path, Path], dict[str, pl.LazyFrame]]


_CSV = DataSetLayout(("ratings.csv", "movies.csv"), movielens.read_csv)
FORMS: dict[str, tuple[DataSetLayout, ...]] = {
    "ml-100k": (DataSetLayout(("u.data", "u.item"), movielens.read_100k), DataSetLayout(("*.inter",), movielens.read_typed)),
    "ml-1m": (DataSetLayout(("ratings.dat", "movies.dat"), movielens.read_dat), DataSetLayout(("*.inter",), movielens.read_typed)),
    "ml-20m": (_CSV, DataSetLayout(("*.inter",), movielens.read_typed)),
    "ml-25m": (_CSV, DataSetLayout(("*.inter",), movielens.read_typed)),
    "criteo": (DataSetLayout(("day_*",), criteo.read_days), DataSetLayout(("train.txt",), criteo.read_days)),
}


def load(name: str, folder: Path, scratch: Path) -> DataSet:
    """Loads a data set from its unpacked folder or the parent folder."""
    if name not in FORMS:
        raise Invalid(f"unknown data set '{name}' (known: {', '.join(FORMS)})")
    if not folder.is_dir():
        raise BadData(f"{folder}: not a folder; unpack {name} there, or name the folder with its files")
    for place in (folder, folder / name):
        for form in FORMS[name]:
            if all(any(place.glob(need)) for need in form.needs):
                return DataSet(name, **form.read(place, scratch))
    wanted = "; or ".join(" and ".join(form.needs) for form in FORMS[name])
    there = ", ".join(sorted(path.name for path in folder.iterdir())[:8]) or "nothing"
    raise BadData(f"{folder}: {name} not found: expected {wanted}; the folder has {there}")


def recognise(folder: Path) -> str | None:
    """Returns the data set whose layout the folder has; of two with one layout, the smaller, which loads equally."""
    for name, forms in FORMS.items():
        if all(any(folder.glob(need)) for need in forms[0].needs):
            return name
    return "criteo" if (folder / "train.txt").exists() else "ml-100k" if any(folder.glob("*.inter")) else None
