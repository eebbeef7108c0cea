"""MovieLens in GroupLens' three published layouts, and with typed headers.

All give the same columns: userId, movieId, rating, timestamp; movieId, title, year, genres (separated by '|'); userId, age, gender,
occupation, zip. The older archives are in Latin-1.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import polars as pl

from pipelines.data.recbole import scan_typed
from shared.domain.errors import BadData

Tables = dict[str, pl.LazyFrame]
RATINGS = {"userId": pl.Int64(), "movieId": pl.Int64(), "rating": pl.Float64(), "timestamp": pl.Int64()}
GENRES_100K = (
    "unknown", "Action", "Adventure", "Animation", "Children's", "Comedy", "Crime", "Documentary", "Drama", "Fantasy", "Film-Noir",
    "Horror", "Musical", "Mystery", "Romance", "Sci-Fi", "Thriller", "War", "Western",
)  # fmt: skip
"""In the order of the flags of u.item."""
_NONE = "(no genres listed)"
_YEAR = r"\((\d{4})\)\s*$"
_USERS = {"userId": pl.Int64(), "age": pl.Int64(), "gender": pl.String(), "occupation": pl.String(), "zip": pl.String()}


def read_100k(folder: Path, _: Path) -> Tables:
    ratings = pl.scan_csv(folder / "u.data", separator="\t", has_header=False, schema=RATINGS, quote_char=None)
    rows = [
        {"movieId": _integer(fields[0], path, number), "title": fields[1] or None, "genres": _flagged(fields[5:24])}
        for path, number, fields in _lines(folder / "u.item", "|", 24)
    ]
    items = _with_year(pl.DataFrame(rows, schema={"movieId": pl.Int64, "title": pl.String, "genres": pl.String}))
    users = _people(folder / "u.user", "|", ("userId", "age", "gender", "occupation", "zip"))
    return {"interactions": ratings, "items": items} | users


def read_dat(folder: Path, _: Path) -> Tables:
    """Reads fields separated by '::'. The many ratings are read as columns separated by ':', every second one empty."""
    columns = dict(zip(("userId", "_1", "movieId", "_2", "rating", "_3", "timestamp"), [RATINGS["userId"], pl.String()] * 4, strict=False))
    columns["rating"] = RATINGS["rating"]
    ratings = pl.scan_csv(folder / "ratings.dat", separator=":", has_header=False, schema=columns, quote_char=None).select(*RATINGS)
    rows = [
        {"movieId": _integer(fields[0], path, number), "title": fields[1] or None, "genres": _genres(fields[2])}
        for path, number, fields in _lines(folder / "movies.dat", "::", 3)
    ]
    items = _with_year(pl.DataFrame(rows, schema={"movieId": pl.Int64, "title": pl.String, "genres": pl.String}))
    users = _people(folder / "users.dat", "::", ("userId", "gender", "age", "occupation", "zip"))
    return {"interactions": ratings, "items": items} | users


def read_csv(folder: Path, _: Path) -> Tables:
    ratings = pl.scan_csv(folder / "ratings.csv", schema_overrides=RATINGS).select(*RATINGS)
    movies = pl.scan_csv(folder / "movies.csv", schema_overrides={"movieId": pl.Int64, "title": pl.String, "genres": pl.String})
    genres = pl.when(pl.col("genres") != _NONE).then("genres").alias("genres")
    return {"interactions": ratings, "items": _dated(movies.select("movieId", "title", genres))}


def read_typed(folder: Path, _: Path) -> Tables:
    """Reads `.inter`, and `.item` and `.user` if present."""
    inter = scan_typed(sorted(folder.glob("*.inter")))
    tables = {
        "interactions": inter.select(userId="user_id", movieId="item_id", rating="rating", timestamp=pl.col("timestamp").cast(pl.Int64))
    }
    if items := sorted(folder.glob("*.item")):
        genres = pl.col("class").str.split(" ").list.eval(pl.element().filter(pl.element() != "")).list.join("|")
        year = pl.col("release_year").cast(pl.Int64, strict=False)
        titled = scan_typed(items).select(movieId="item_id", title="movie_title", year=year, genres=pl.when(genres != "").then(genres))
        tables["items"] = titled
    if users := sorted(folder.glob("*.user")):
        names = {"userId": "user_id", "age": "age", "gender": "gender", "occupation": "occupation", "zip": "zip_code"}
        tables["users"] = scan_typed(users).select(**names).cast({"occupation": pl.String, "zip": pl.String})
    return tables


def _people(path: Path, separator: str, names: tuple[str, ...]) -> Tables:
    """Returns the table of users, if the archive has one."""
    if not path.exists():
        return {}
    columns: dict[str, list[int | str]] = {name: [] for name in names}
    for where, number, fields in _lines(path, separator, len(names)):
        for name, field in zip(names, fields, strict=True):
            columns[name].append(_integer(field, where, number) if name in ("userId", "age") else field)
    return {"users": pl.DataFrame(columns, schema={name: _USERS[name] for name in names}).select(*_USERS).lazy()}


def _lines(path: Path, separator: str, fields: int) -> Iterator[tuple[Path, int, list[str]]]:
    with path.open(encoding="latin-1") as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            values = line.rstrip("\r\n").split(separator)
            if len(values) != fields:
                raise BadData(f"{path}: line {number} has {len(values)} fields separated by '{separator}'; expected {fields}")
            yield path, number, values


def _integer(text: str, path: Path, number: int) -> int:
    try:
        return int(text)
    except ValueError:
        raise BadData(f"{path}: line {number}: {text[:40]!r} is not an integer") from None


def _flagged(flags: list[str]) -> str | None:
    return "|".join(name for name, flag in zip(GENRES_100K, flags, strict=True) if flag == "1") or None


def _genres(text: str) -> str | None:
    return None if text in ("", _NONE) else text


def _with_year(items: pl.DataFrame) -> pl.LazyFrame:
    return _dated(items.lazy())


def _dated(items: pl.LazyFrame) -> pl.LazyFrame:
    """Takes the year from the end of the title."""
    return items.with_columns(year=pl.col("title").str.extract(_YEAR).cast(pl.Int64)).select("movieId", "title", "year", "genres")
