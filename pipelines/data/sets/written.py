"""Writes twins in the published layout or as Parquet; names only complete files."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import polars as pl
import pyarrow.parquet as pq

from pipelines.data.sets.movielens import GENRES_100K
from pipelines.data.sets.synthetic_twins import SHAPES, Twin, TwinShape, criteo_rows
from pipelines.data.synthetic import World
from shared.domain.errors import Conflict, Invalid

Progress = Callable[[str], None]
FILMS = "films"
_FIRST, _LAST = 1_700_000_000, 1_730_000_000
_OLDER = 0.8
"""Share of the films' ratings that are interactions."""


def write_twin(
    name: str, folder: Path, seed: int, rows: int | None = None, *, parquet: bool = False, say: Progress = lambda _: None
) -> dict[str, int]:
    """Writes a twin; returns the number of rows by file."""
    if name == FILMS:
        return _films(folder, seed, rows or 40_000, say)
    if name not in SHAPES:
        raise Invalid(f"unknown data set '{name}' (known: {', '.join((FILMS, *SHAPES))})")
    shape = SHAPES[name].of(rows or SHAPES[name].rows)
    if shape.written == "days":
        chunks = criteo_rows(shape.rows, seed)
        return (
            {"interactions.parquet": _parquet(folder, "interactions.parquet", chunks, say)}
            if parquet
            else {"day_0": _day(folder, chunks, say)}
        )
    twin = Twin.create(shape, seed)
    if parquet:
        return {
            "interactions.parquet": _parquet(folder, "interactions.parquet", twin.ratings(), say),
            "items.parquet": _parquet(folder, "items.parquet", iter([twin.items()]), say),
            "users.parquet": _parquet(folder, "users.parquet", iter([twin.users()]), say),
        }
    return _NATIVE[shape.written](folder, twin, shape, say)


def _films(folder: Path, seed: int, rows: int, say: Progress) -> dict[str, int]:
    """Writes ratings of users with known tastes: older ones as interactions, and the newest to later.parquet, for simulated visitors."""
    users = max(20, rows // 100)
    world = World.create(users, users * 3 // 2, seed=seed)
    ratings = world.ratings(rows, _FIRST, _LAST, seed=1).frame()
    older = round(len(ratings) * _OLDER)
    return {
        "interactions.parquet": _parquet(folder, "interactions.parquet", iter([ratings[:older]]), say),
        "items.parquet": _parquet(folder, "items.parquet", iter([world.items()]), say),
        "later.parquet": _parquet(folder, "later.parquet", iter([ratings[older:]]), say),
    }


def _of_100k(folder: Path, twin: Twin, shape: TwinShape, say: Progress) -> dict[str, int]:
    rating = pl.col("rating").cast(pl.Int64)
    flags = [
        pl.lit(0) if name == "unknown" else pl.col("genres").str.split("|").list.contains(name.removesuffix("'s")).cast(pl.Int8)
        for name in GENRES_100K
    ]
    released = pl.format("01-Jan-{}", "year")
    item = pl.concat_str(["movieId", "title", released, pl.lit(""), pl.lit(""), *flags], separator="|")
    user = pl.concat_str(["userId", "age", "gender", "occupation", "zip"], separator="|")
    rated = (chunk.select(line=pl.concat_str(["userId", "movieId", rating, "timestamp"], separator="\t")) for chunk in twin.ratings())
    return {
        "u.data": _lines(folder, "u.data", rated, say),
        "u.item": _lines(folder, "u.item", iter([twin.items().select(line=item)]), say),
        "u.user": _lines(folder, "u.user", iter([twin.users().select(line=user)]), say),
    }


def _of_dat(folder: Path, twin: Twin, shape: TwinShape, say: Progress) -> dict[str, int]:
    rating = pl.col("rating").cast(pl.Int64)
    rated = (chunk.select(line=pl.concat_str(["userId", "movieId", rating, "timestamp"], separator="::")) for chunk in twin.ratings())
    genres = pl.col("genres").str.replace("Children", "Children's")
    return {
        "ratings.dat": _lines(folder, "ratings.dat", rated, say),
        "movies.dat": _lines(
            folder, "movies.dat", iter([twin.items().select(line=pl.concat_str(["movieId", "title", genres], separator="::"))]), say
        ),
        "users.dat": _lines(
            folder,
            "users.dat",
            iter([twin.users().select(line=pl.concat_str(["userId", "gender", "age", "occupation", "zip"], separator="::"))]),
            say,
        ),
    }


def _of_csv(folder: Path, twin: Twin, shape: TwinShape, say: Progress) -> dict[str, int]:
    return {
        "ratings.csv": _csv(folder, "ratings.csv", twin.ratings(), say),
        "movies.csv": _csv(folder, "movies.csv", iter([twin.items().select("movieId", "title", "genres")]), say),
    }


_NATIVE: dict[str, Callable[[Path, Twin, TwinShape, Progress], dict[str, int]]] = {"100k": _of_100k, "dat": _of_dat, "csv": _of_csv}


def _day(folder: Path, chunks: Iterator[pl.DataFrame], say: Progress) -> int:
    with _new(folder, "day_0") as stream:
        return _each(chunks, lambda chunk: chunk.write_csv(stream, separator="\t", include_header=False, quote_style="never"), "day_0", say)


def _lines(folder: Path, name: str, chunks: Iterator[pl.DataFrame], say: Progress) -> int:
    with _new(folder, name) as stream:
        return _each(chunks, lambda chunk: chunk.write_csv(stream, include_header=False, quote_style="never"), name, say)


def _csv(folder: Path, name: str, chunks: Iterator[pl.DataFrame], say: Progress) -> int:
    with _new(folder, name) as stream:
        return _each(chunks, lambda chunk: chunk.write_csv(stream, include_header=stream.tell() == 0), name, say)


def _parquet(folder: Path, name: str, chunks: Iterator[pl.DataFrame], say: Progress) -> int:
    with _new(folder, name) as stream:
        writer: pq.ParquetWriter | None = None

        def write(chunk: pl.DataFrame) -> None:
            nonlocal writer
            table = chunk.to_arrow()
            writer = writer or pq.ParquetWriter(stream, table.schema, compression="zstd")
            writer.write_table(table)

        rows = _each(chunks, write, name, say)
        if writer is not None:
            writer.close()
    return rows


def _each(chunks: Iterator[pl.DataFrame], write: Callable[[pl.DataFrame], object], name: str, say: Progress) -> int:
    rows = 0
    for chunk in chunks:
        write(chunk)
        rows += len(chunk)
        say(f"{name}: {rows:,} rows")
    return rows


@contextmanager
def _new(folder: Path, name: str) -> Iterator[BinaryIO]:
    folder.mkdir(parents=True, exist_ok=True)
    path, new = folder / name, folder / f".new-{name}"
    if path.exists():
        raise Conflict(f"{path}: already exists; name another folder, or remove this one")
    try:
        with new.open("wb") as stream:
            yield stream
        new.replace(path)
    finally:
        new.unlink(missing_ok=True)
