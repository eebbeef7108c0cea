"""The same rows written in every kind of source: files, folders, objects and databases; and the checks that each kind passes."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
import psycopg
import pytest
from polars.testing import assert_frame_equal

from pipelines.data.interactions import from_file, open_interactions, plain_events, read_events
from pipelines.data.sources import ReadableRoots, open_source
from pipelines.data.tfrecord.layout import beside
from pipelines.data.tfrecord.writer import write_tfrecord
from shared.contracts.sources import Place
from shared.domain.errors import BadData
from tests.servers.postgres_server import Server
from tests.servers.s3_server import S3Server
from tests.unit.pipelines.recommender import spec


def rows(count: int) -> pl.DataFrame:
    """What every kind can hold: whole numbers to the ends of int64, fractions, and text with all that text can have."""
    number = pl.int_range(count, dtype=pl.Int64, eager=True)
    words = ["plain", "", None, "ünï—çødé 🦅", 'a "quoted" word', "a, comma", "a\ttab", "it's", "0123", "NULL"]
    return pl.DataFrame(
        {
            "userId": number % 997,
            "movieId": pl.select(
                pl.when(number == 7).then(2**63 - 1).when(number == 8).then(-(2**63)).otherwise(number * 7 % 5_003)
            ).to_series(),
            "rating": (number % 9) / 2 + 0.5,
            "at": 1_600_000_000 + number,
            "year": pl.select(pl.when(number % 5 == 3).then(None).otherwise(number % 60 + 1960)).to_series(),
            "word": pl.Series([words[n % len(words)] for n in range(count)]),
        }
    )


Databases = Callable[[str], None]


@dataclass(frozen=True)
class Source:
    """Where rows were written, and how they are reached."""

    folder: Path
    place: Place
    roots: tuple[str, ...]
    empty: bool = True
    """Whether it tells empty text from none."""

    def reach(self, name: str = "scratch") -> ReadableRoots:
        return ReadableRoots(self.roots, self.folder / name)


def at(folder: Path, uri: str | Path, empty: bool = True) -> Source:
    return Source(folder, Place(uri=str(uri)), (str(folder),), empty)


def parquet(folder: Path, frame: pl.DataFrame, **_: Any) -> Source:
    frame.write_parquet(folder / "rows.parquet")
    return at(folder, "rows.parquet")


def csv(folder: Path, frame: pl.DataFrame, **_: Any) -> Source:
    frame.write_csv(folder / "rows.csv")
    return at(folder, folder / "rows.csv")


def tsv(folder: Path, frame: pl.DataFrame, **_: Any) -> Source:
    frame.write_csv(folder / "rows.tsv", separator="\t")
    return at(folder, folder / "rows.tsv")


def typed(folder: Path, frame: pl.DataFrame, **_: Any) -> Source:
    kinds = {"rating": "float"}
    plain = frame.with_columns(pl.col("word").str.replace("\t", " "))
    text = plain.write_csv(separator="\t", quote_style="never", include_header=False)
    header = "\t".join(f"{name}:{kinds.get(name, 'token')}" for name in frame.columns)
    (folder / "rows.inter").write_text(f"{header}\n{text}")
    return at(folder, folder / "rows.inter", empty=False)


def pieces(folder: Path, frame: pl.DataFrame) -> None:
    for number, some in enumerate(frame.iter_slices(len(frame) // 2)):
        place = folder / "days" / f"day={number}" / "part-0.parquet"
        place.parent.mkdir(parents=True)
        some.write_parquet(place)
    (folder / "days" / "_SUCCESS").write_text("")
    (folder / "days" / "README.txt").write_text("what this is")


def glob(folder: Path, frame: pl.DataFrame, **_: Any) -> Source:
    pieces(folder, frame)
    return at(folder, "days/*/*.parquet")


def whole_folder(folder: Path, frame: pl.DataFrame, **_: Any) -> Source:
    pieces(folder, frame)
    return at(folder, folder / "days")


def texts(folder: Path, frame: pl.DataFrame, **_: Any) -> Source:
    """CSV files of which the first alone would say that ratings are whole, and whose columns stand in another order."""
    (folder / "texts").mkdir()
    whole = pl.col("rating") == pl.col("rating").floor()
    frame.filter(whole).with_columns(pl.col("rating").cast(pl.Int64)).write_csv(folder / "texts" / "a.csv")
    frame.filter(~whole).select(reversed(frame.columns)).write_csv(folder / "texts" / "b.csv")
    return at(folder, folder / "texts")


def other_names(folder: Path, frame: pl.DataFrame, **_: Any) -> Source:
    frame.rename({"userId": "u", "rating": "user rating"}).write_parquet(folder / "rows.parquet")
    return Source(folder, Place(uri="rows.parquet", names={"userId": "u", "rating": "user rating"}), (str(folder),))


def tfrecord(folder: Path, frame: pl.DataFrame, **_: Any) -> Source:
    """By itself, without a layout: fractions are float32 then, as TensorFlow wrote them."""
    write_tfrecord(frame.lazy(), folder / "rows.tfrecord", {})
    beside(folder / "rows.tfrecord").unlink()
    return at(folder, "rows.tfrecord")


def tfrecord_batches(folder: Path, frame: pl.DataFrame, **_: Any) -> Source:
    for number, some in enumerate(frame.iter_slices(len(frame) * 5 // 7)):
        path = folder / "days" / f"{number}.tfrecord.gz"
        path.parent.mkdir(exist_ok=True)
        write_tfrecord(some.lazy(), path, {"userId": "u", "rating": "r"}, batch=1000, grouped=True)
    return at(folder, folder / "days")


def tfrecord_objects(folder: Path, frame: pl.DataFrame, s3: S3Server, **_: Any) -> Source:
    tfrecord_batches(folder, frame)
    bucket = folder.name.replace("_", "-")
    for path in (folder / "days").iterdir():
        s3.put(path, bucket, f"days/{path.name}")
    return Source(folder, Place(uri=f"s3://{bucket}/days/"), (f"s3://{bucket}/",))


def objects(folder: Path, frame: pl.DataFrame, s3: S3Server, **_: Any) -> Source:
    frame.head(len(frame) * 9 // 14).write_parquet(folder / "a.parquet")
    frame.slice(len(frame) * 9 // 14).write_parquet(folder / "b.parquet")
    bucket = folder.name.replace("_", "-")
    for name in ("a.parquet", "b.parquet"):
        s3.put(folder / name, bucket, f"films/part of {name}")
    return Source(folder, Place(uri=f"s3://{bucket}/films/*.parquet"), (f"s3://{bucket}/films",))


def object_text(folder: Path, frame: pl.DataFrame, s3: S3Server, **_: Any) -> Source:
    frame.write_csv(folder / "rows.csv")
    bucket = folder.name.replace("_", "-")
    return Source(folder, Place(uri=s3.put(folder / "rows.csv", bucket, "films/rows.csv")), (str(folder), f"s3://{bucket}"))


COLUMNS = '"userId" bigint, "movieId" bigint, rating double precision, at bigint, year bigint, word text'
QUERY = 'SELECT "userId", "movieId", rating, at, year, word FROM did ORDER BY at'


def sqlite(folder: Path, frame: pl.DataFrame, databases: Databases, **_: Any) -> Source:
    with sqlite3.connect(folder / "shop.db") as connection:
        connection.execute(f"CREATE TABLE did ({COLUMNS})")
        connection.executemany("INSERT INTO did VALUES (?,?,?,?,?,?)", frame.rows())
    connection.close()
    databases(f"shop: sqlite:///{folder}/shop.db")
    return Source(folder, Place.model_validate({"query": QUERY, "from": "shop"}), ())


def postgresql(folder: Path, frame: pl.DataFrame, databases: Databases, postgres: Server, **_: Any) -> Source:
    url = postgres.new_database(migrated=False)
    with psycopg.connect(url) as connection, connection.cursor() as cursor:
        cursor.execute(f"CREATE TABLE did ({COLUMNS})".encode())
        with cursor.copy("COPY did FROM STDIN") as copy:
            for row in frame.iter_rows():
                copy.write_row(row)
    databases(f"shop: {url}")
    return Source(folder, Place.model_validate({"query": QUERY, "from": "shop"}), ())


FILES = [parquet, csv, tsv, typed, glob, whole_folder, texts, other_names, tfrecord, tfrecord_batches]
IN_S3 = [objects, object_text, tfrecord_objects]


def assert_same_frame(source: Source, frame: pl.DataFrame) -> None:
    opened = open_source(source.place, source.reach(), ("userId", "movieId", "rating", "at"))
    found = opened.frame.select(frame.columns).collect().sort("at")
    if source.place.uri and source.place.uri.endswith((".inter",)):
        frame = frame.with_columns(pl.col("word").str.replace("\t", " "))
    if not source.empty:
        frame = frame.with_columns(pl.when(pl.col("word") != "").then("word"))
        found = found.with_columns(pl.when(pl.col("word") != "").then("word"))
    if found["rating"].dtype == pl.Float32:
        found = found.with_columns(pl.col("rating").cast(pl.Float64))
    assert_frame_equal(found, frame)


def assert_digest_is_stable(source: Source) -> None:
    digests = [open_source(source.place, source.reach(name), ("userId",)).digest() for name in ("one", "two", "one")]
    assert len(set(digests)) == 1
    assert len(digests[0]) == 64


def assert_missing_column_is_named(source: Source) -> None:
    with pytest.raises(BadData, match="column 'device' is missing; columns: ") as caught:
        open_source(source.place, source.reach(), ("userId", "device"))
    assert "\n" not in str(caught.value)


def assert_events_join(source: Source, count: int) -> None:
    """One event of the platform joins the rows of the source."""
    folder = source.folder
    recommender = spec(
        folder,
        data={"interactions": source.place.model_dump(by_alias=True) | {"also": "events"}, "items": {"uri": "i.csv", "key": "movieId"}},
    )
    (folder / "events.csv").write_text("user,item,value,time\n1,2,,1.7e9\n")
    opened = open_interactions(recommender, source.reach())
    joined = pl.concat([from_file(opened, recommender), plain_events(read_events([[folder / "events.csv"]], recommender))]).collect()
    assert len(joined) == count + 1
    assert joined.schema == {"user": pl.Int64, "item": pl.Int64, "time": pl.Float64, "label": pl.Int8}
