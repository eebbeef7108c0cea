"""Each row of training has what counted of its user at its own time: against a plain loop that asks, row by row, what was known then."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some
from polars.testing import assert_frame_equal

from pipelines.features.asof import SINCE
from pipelines.features.operators.target import CountEncode
from pipelines.features.prepared import FEATURE, Prepared, prepare
from pipelines.inputs.eval_pairs import read_meetings, read_raw
from pipelines.stages.user_overrides import by_moments
from shared.contracts.online import OnlineColumn, View
from shared.domain.feature_values import StoredRow, instant, is_over, moment
from tests.support.feature_graphs import unfitted
from tests.support.feature_histories import history_of
from tests.unit.pipelines.recommender import films, spec

START = datetime(2026, 1, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)
FEATURES: list[Any] = [
    {"categorify": ["userId", "movieId", "town"]},
    {"multi_hot": "tags"},
    {"normalise": "age"},
    {"bucketise": "age", "at": [30, 50]},
    {"target_encode": {"of": "town", "folds": 3}},
    {"count_encode": "town"},
    {"calendar": {"of": "at", "parts": ["hour"]}},
    {"cross": ["town", "hour"], "buckets": 1000},
]
COLUMNS = (
    OnlineColumn(name="town", dtype="string"),
    OnlineColumn(name="age", dtype="float32"),
    OnlineColumn(name="tags", dtype="string", width=3),
)
TABLE = pl.DataFrame(
    {"userId": [1, 2, 3], "town": ["Bern", "Basel", None], "age": [20.0, None, 60.0], "tags": [["a"], [], ["a", "b"]]},
    schema_overrides={"age": pl.Float32},
)
USERS = some.integers(1, 5)  # of the last two nobody knows anything before it is written
HOURS = some.integers(0, 8).map(lambda hours: START + hours * HOUR)
TIMES = some.one_of(HOURS, some.integers(0, 8 * 3600 * 10**6).map(lambda microseconds: START + timedelta(microseconds=microseconds)))
VALUES = some.fixed_dictionaries(
    {},
    optional={
        "town": some.sampled_from(["Bern", "Chur", "Genf", ""]),
        "age": some.sampled_from([10.0, 40.0, 70.0]),
        "tags": some.lists(some.sampled_from(["a", "c", "d"]), max_size=3).map(tuple),
    },
)
WRITES = some.lists(some.builds(StoredRow, USERS, TIMES, VALUES), max_size=25)
MET = some.lists(some.tuples(USERS, some.integers(1, 20), TIMES, some.integers(0, 1)), min_size=1, max_size=20)
TTLS = some.sampled_from([None, timedelta(milliseconds=1), HOUR, 3 * HOUR])


def then(writes: list[StoredRow], user: int, now: datetime, ttl: timedelta | None) -> dict[str, Any]:
    """The oracle: as it was at that time."""
    known = TABLE.filter(pl.col("userId") == user).to_dicts()
    values = known[0] if known else {"userId": user, "town": None, "age": None, "tags": None}
    past = [row for row in writes if row.key == user and row.at <= now]
    best = max(past, key=lambda row: row.rank, default=None)
    if best is not None and not is_over(best.at, ttl, now):
        values |= {name: list(value) if isinstance(value, tuple) else value or None for name, value in best.values.items()}
    return values


def ready(writes: list[StoredRow], rows: pl.LazyFrame, ttl: timedelta | None) -> Prepared:
    recommender = spec(Path(), features=FEATURES)
    found = prepare(unfitted(recommender, films().schema, TABLE.schema), films(), TABLE, rows)
    assert found.users is not None
    view = View(name="users", columns=COLUMNS, ttl=ttl)
    users = by_moments(found.users, "userId", history_of(writes, view).lazy(), view, rows)
    return replace(found, users=users)


def interactions(met: list[tuple[int, int, datetime, int]]) -> pl.DataFrame:
    rows = [(user, item, instant(at) / 1e6, label) for user, item, at, label in met]
    return pl.DataFrame(rows, schema={"user": pl.Int64, "item": pl.Int64, "time": pl.Float64, "label": pl.Int8}, orient="row")


@pytest.mark.requirement("G-08")
@settings(max_examples=20, deadline=None)
@given(WRITES, MET, TTLS)
def test_each_row_of_training_has_what_was_known_at_its_time(
    tmp_path_factory: pytest.TempPathFactory, writes: list[StoredRow], met: list[tuple[int, int, datetime, int]], ttl: timedelta | None
) -> None:
    folder, rows = tmp_path_factory.mktemp("moments"), interactions(met)
    train, holdout = rows[: len(rows) // 2 + 1].lazy(), rows[len(rows) // 2 + 1 :].lazy()
    found = ready(writes, rows.lazy(), ttl).fit(train)
    paths = (folder / "train.parquet", folder / "holdout.parquet")
    found.write_rows(train, holdout, None, paths)
    written = pl.concat([pl.read_parquet(path) for path in paths])
    assert found.users is not None
    graph, features = found.graph, found.graph.table(found.users.lazy(), "user").collect()

    expected = [then(writes, user, at, ttl) for user, _, at, _ in met]
    plain = pl.DataFrame(expected, schema={name: found.users.schema[name] for name in TABLE.columns})
    assert found.users[written["user_row"]].select(plain.columns).equals(plain)
    assert_frame_equal(features[written["user_row"]], graph.table(plain.lazy(), "user").collect(), rel_tol=1e-6)
    assert found.rows(rows.lazy()).select("town", "age", "tags").collect().equals(plain.select("town", "age", "tags"))

    counts = Counter(one["town"] for one in expected[: len(rows) // 2 + 1] if one["town"] is not None)
    (counting,) = (one for one in graph.operators if isinstance(one, CountEncode))
    assert counting.counts is not None
    assert dict(counting.counts.iter_rows()) == counts, "what is fitted on rows is fitted on what counted of them"
    hours = plain.with_columns(pl.Series("at", [instant(at) // 10**6 for _, _, at, _ in met]))
    crossed = graph.transform(hours.lazy(), "context").collect()
    assert written[f"{FEATURE}town_x_hour"].to_list() == crossed["town_x_hour"].to_list()

    newest = max([instant(at) for _, _, at, _ in met] + [instant(row.at) for row in writes])
    last = found.users.unique("userId", keep="last", maintain_order=True)
    now = [then(writes, user, moment(newest), ttl) for user in last["userId"]]
    assert last.drop(SINCE).rows(named=True) == now, "a user's last row is what serving begins with"


@pytest.mark.requirement("G-08")
def test_an_evaluation_asks_as_of_then_and_serving_begins_with_now(tmp_path: Path) -> None:
    def at(hours: float) -> datetime:
        return START + hours * HOUR

    writes = [StoredRow(1, at(2), {"town": "Chur"}), StoredRow(1, at(6), {"town": "Genf"}), StoredRow(2, at(6), {"town": "Chur"})]
    rows = interactions([(1, 1, at(1), 1), (2, 1, at(1), 0), (1, 2, at(3), 1), (1, 3, at(7), 0), (3, 3, at(3), 1)])
    train, holdout = rows[:2].lazy(), rows[2:].lazy()
    found = ready(writes, rows.lazy(), None).fit(train)
    found.write_rows(train, holdout, None, (tmp_path / "train.parquet", tmp_path / "holdout.parquet"))
    assert found.users is not None
    for name, table, side in (("items", found.items, "item"), ("users", found.users, "user")):
        table.write_parquet(tmp_path / f"{name}.parquet")
        found.graph.table(table.lazy(), side).collect().write_parquet(tmp_path / f"{name}.features.parquet")  # type: ignore[arg-type]

    users = np.array([1, 2, 3, 77])
    towns = ["Bern", "Chur", "Genf", None]
    each = pl.LazyFrame({"userId": [1] * 4, "town": towns, "age": [0.0] * 4, "tags": [["a"]] * 4})
    codes = dict(zip(towns, found.graph.transform(each, "user").collect()["town"], strict=True))
    for now, expected in ((False, ["Chur", "Chur", None, None]), (True, ["Genf", "Chur", None, None])):
        meetings = read_meetings(lambda name: tmp_path / name, True, found.graph, now)
        assert meetings.features(users, users * 0)["town"].tolist() == [codes[one] for one in expected]
        raw = read_raw(lambda name: tmp_path / name, True, meetings)
        assert raw.frame(found.graph, users, users * 0)["town"].to_list() == expected
