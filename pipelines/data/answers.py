"""Logged answers and their likes, read from the days of events that the control plane provides.

Attribution equals the event log's: a like belongs to the answer that it names, if that answer showed the item to this user; else to the
newest answer within the attribution window that showed it. So hits equal those counted online.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

import polars as pl

from pipelines.data.days import read_dump
from pipelines.data.sources import readable
from shared.contracts.archive import EventTable
from shared.contracts.events import NOTHING_LEFT

_SHOWN = ("request_id", "user", "version", "items", "propensities", "fallback", "at")
_DONE = ("user", "item", "positive", "request_id", "at")


@dataclass(frozen=True)
class AnswerLog:
    answers: pl.DataFrame
    """request_id, user, version, items, chances, fallback, at; `liked`: places from 0."""
    likes: pl.DataFrame
    """user, item, at: every positive of those users, attributed or not."""


def read_log(files: Mapping[str, Path], attribution: timedelta) -> AnswerLog:
    """Reads `files` by name: TABLE/date=DAY/part-NUMBER.parquet and TABLE/DAY.ndjson."""
    with readable("logged days"):
        answers = _read(files, "impressions", _SHOWN).filter(pl.col("items").is_not_null()).unique("request_id").collect()
        done = _read(files, "interactions", _DONE).filter(pl.col("positive") & pl.col("item").is_not_null())
        of_users = done.join(answers.lazy().select("user").unique(), on="user", how="semi")
        positives = of_users.with_row_index("event").collect()
    liked = _liked(answers, positives, attribution)
    places = liked.group_by("request_id").agg(pl.col("place").unique().sort().alias("liked"))
    none = pl.col("liked").fill_null(pl.lit([], dtype=pl.List(pl.Int64)))
    answers_with_likes = answers.join(places, on="request_id", how="left").with_columns(none).sort("at", "request_id")
    return AnswerLog(answers_with_likes, positives.select("user", "item", "at"))


def _read(files: Mapping[str, Path], table: EventTable, columns: tuple[str, ...]) -> pl.LazyFrame:
    frames: list[pl.LazyFrame] = []
    for name, path in sorted(files.items()):
        if not name.startswith(f"{table}/"):
            continue
        with readable(name):
            frames.append(
                pl.scan_parquet(path).select(columns) if path.suffix == ".parquet" else read_dump(table, path).lazy().select(columns)
            )
    return pl.concat(frames) if frames else read_dump(table, None).lazy().select(columns)


def _liked(answers: pl.DataFrame, positives: pl.DataFrame, attribution: timedelta) -> pl.DataFrame:
    """Returns request_id and place of each like within the attribution window."""
    shown = (
        answers.select("request_id", "user", "at", pl.col("items").alias("item"))
        .with_columns(pl.int_ranges(pl.col("item").list.len()).alias("place"))
        .explode("item", "place", empty_as_null=False)
        .drop_nulls("item")
        .unique(["request_id", "item"], keep="first", maintain_order=True)
        .rename({"at": "shown_at"})
    )
    named = positives.join(shown, on=["request_id", "user", "item"])
    others = positives.join(named.select("event"), on="event", how="anti")
    newest = (
        others.drop("request_id")
        .sort("at")
        .join_asof(
            shown.sort("shown_at", "request_id"),
            left_on="at",
            right_on="shown_at",
            by=["user", "item"],
            strategy="backward",
            tolerance=attribution,
            coalesce=False,
        )
        .drop_nulls("request_id")
    )
    columns = ("request_id", "place", "at", "shown_at")
    hits = pl.concat([named.select(columns), newest.select(columns)])
    return hits.filter(pl.col("at") - pl.col("shown_at") <= attribution).select("request_id", "place")


def usable(log: AnswerLog, version: int, since: datetime, until: datetime) -> tuple[pl.DataFrame, Mapping[str, int]]:
    """Returns the version's own answers of [since, until) with a chance for each item, and the number of dropped answers by reason."""
    own = log.answers.filter((pl.col("version") == version) & (pl.col("at") < until))
    rules = {
        "older than the candidate's newest training row": pl.col("at") >= since,
        "fallbacks": pl.col("fallback").is_null() | (pl.col("fallback") == NOTHING_LEFT),
        "empty": pl.col("items").list.len() > 0,
        "without propensities": pl.col("propensities").is_not_null() & (pl.col("propensities").list.len() == pl.col("items").list.len()),
    }
    left: dict[str, int] = {}
    for why, rule in rules.items():
        matching = own.filter(rule)
        left[why] = len(own) - len(matching)
        own = matching
    return own, {why: count for why, count in left.items() if count}
