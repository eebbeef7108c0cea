"""Compares a batch with the last accepted batch: moved values, new keys, lost ties."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

import polars as pl

from pipelines.data.validation.columns import InteractionColumns
from pipelines.data.validation.figures import check, percent
from pipelines.data.validation.keys import sampled
from pipelines.data.validation.moved import SharedBins, column_moved, moved
from pipelines.data.validation.profile import Profile
from shared.contracts.validation import CheckLimits, Validate
from shared.contracts.validation_report import Check, Distribution
from shared.domain.soundness import lost

FEWEST_ROWS = 1000
"""Below this number of rows, ties are mostly chance."""
_MOST_DISORDER = CheckLimits(warn=0.1)


def compare(
    frame: pl.LazyFrame, profile: Profile, accepted: Profile, columns: InteractionColumns, settings: Validate
) -> Iterator[tuple[Check, Distribution | None]]:
    yield _newer(profile, accepted, columns), None
    disorder = max(0.0, profile.disorder - accepted.disorder)
    order = f"{percent(profile.disorder)} of the rows are older than the row before them; before: {percent(accepted.disorder)}"
    yield check("order", columns.time, disorder, _MOST_DISORDER, order), None
    for name, key in zip(("user", "item"), columns.keys, strict=True):
        if name in accepted.keys:
            yield _unseen(frame, name, key, accepted, settings), None
            yield moved("activity", f"rows of one {name}", key, _sizes(profile, accepted, name), settings.drift)
    for column, before in accepted.columns.items():
        yield from column_moved(frame, column, before, profile.columns.get(column), profile.rows, settings.drift)
    enough = min(profile.rows, accepted.rows) >= FEWEST_ROWS
    for tie, then in accepted.ties.items() if enough else ():
        part = lost(then, profile.ties.get(tie, 0.0))
        if part is not None:
            number, key = tie.split(" by ")
            column = {"label": columns.label, "time": columns.time}[number]
            of = {"user": columns.user, "item": columns.item}[key]
            says = f"'{of}' explains {percent(profile.ties.get(tie, 0.0))} of '{column}'; before: {percent(then)}"
            if part > (settings.ties.warn or 1):
                says += "; was one column shuffled?"
            yield check("tie", f"{column} by {of}", part, settings.ties, says), None


def _newer(profile: Profile, accepted: Profile, columns: InteractionColumns) -> Check:
    older = profile.newest < accepted.newest
    says = f"newest row: {_moment(profile.newest)}"
    if older:
        says += f"; newest row of the last accepted batch: {_moment(accepted.newest)}; is this an older copy?"
    return check("newest", columns.time, float(older), CheckLimits(warn=0.0), says)


def _moment(time: float) -> str:
    return f"{datetime.fromtimestamp(time, UTC):%Y-%m-%d %H:%M} UTC"


def _unseen(frame: pl.LazyFrame, name: str, key: str, accepted: Profile, settings: Validate) -> Check:
    rows, in_sample = sampled(frame, key, accepted.keys[name])
    share = (rows - in_sample) / rows if rows else 0.0
    return check(
        "unseen", key, share, settings.unseen, f"{percent(share)} of the rows have {name}s that are new since the last accepted batch"
    )


def _sizes(profile: Profile, accepted: Profile, name: str) -> SharedBins:
    names = tuple(str(2**n) if n == 0 else f"{2**n} to {2 ** (n + 1) - 1}" for n in range(len(accepted.keys[name].sizes)))
    return SharedBins(names, accepted.keys[name].sizes, profile.keys[name].sizes)
