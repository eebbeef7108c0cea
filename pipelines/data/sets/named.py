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
class Form:
    """A layout: its required files and its reader."""

    needs: tuple[str, ...]
    read: Callable[[Path, Path], dict[str, pl.LazyFrame]]


_CSV = Form(("ratings.csv", "movies.csv"), movielens.read_csv)
FORMS: dict[str, tuple[Form, ...]] = {
    "ml-100k": (Form(("u.data", "u.item"), movielens.read_100k), Form(("*.inter",), movielens.read_typed)),
    "ml-1m": (Form(("ratings.dat", "movies.dat"), movielens.read_dat), Form(("*.inter",), movielens.read_typed)),
    "ml-20m": (_CSV, Form(("*.inter",), movielens.read_typed)),
    "ml-25m": (_CSV, Form(("*.inter",), movielens.read_typed)),
    "criteo": (Form(("day_*",), criteo.read_days), Form(("train.txt",), criteo.read_days)),
}


def load(name: str, folder: Path, scratch: Path) -> DataSet:
    """Loads a data set from its unpacked folder or the parent folder."""
    if name not in FORMS:
        raise Invalid(f"no data set is called '{name}' (known: {', '.join(FORMS)})")
    if not folder.is_dir():
        raise BadData(f"{folder}: it is no folder: unpack {name} there, or name the folder that it was unpacked to")
    for place in (folder, folder / name):
        for form in FORMS[name]:
            if all(any(place.glob(need)) for need in form.needs):
                return DataSet(name, **form.read(place, scratch))
    wanted = "; or ".join(" and ".join(form.needs) for form in FORMS[name])
    there = ", ".join(sorted(path.name for path in folder.iterdir())[:8]) or "nothing"
    raise BadData(f"{folder}: {name} is not there: expected {wanted}; found {there}")


def recognise(folder: Path) -> str | None:
    """Returns the data set whose layout the folder has; of two with one layout, the smaller, which loads equally."""
    for name, forms in FORMS.items():
        if all(any(folder.glob(need)) for need in forms[0].needs):
            return name
    return "criteo" if (folder / "train.txt").exists() else "ml-100k" if any(folder.glob("*.inter")) else None
