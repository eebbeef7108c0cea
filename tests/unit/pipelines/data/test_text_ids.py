"""Text ids in the data: the kind is found, keys are hashes, reports show the text, and equal keys are refused."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from unittest.mock import Mock

import polars as pl
import pytest

from pipelines.data import sources
from pipelines.data.ids import USER_IDS, text_of
from shared.artifacts.store import FsspecArtifacts
from shared.contracts.stage import ID_KEY, Files
from shared.contracts.validation_report import QUARANTINE, REPORT
from shared.domain import entity_ids
from shared.domain.entity_ids import IdHash, IdKinds
from shared.domain.errors import BadData
from tests.support.etl_stage import Etl
from tests.support.refitted import NEWCOMER, Stages
from tests.support.secret_files import write_secret
from tests.unit.pipelines import recommender
from tests.unit.pipelines.recommender import films, ratings, spec

HASH = IdHash(bytes(range(32)))
TEXT = {"user": "text", "item": "text"}


def named(prefix: str) -> Callable[[int], str]:
    return lambda number: f"{prefix}-{number:03}"


def as_text(frame: pl.DataFrame) -> pl.DataFrame:
    """The same rows with text ids: unlike numbers, these sort in another order than their keys."""
    columns = {"userId": named("user"), "movieId": named("film é")}
    return frame.with_columns(pl.col(name).map_elements(make, pl.String) for name, make in columns.items() if name in frame.columns)


def id_key(folder: Path) -> dict[str, Files]:
    path = folder / ID_KEY
    path.write_text(HASH.secret.hex())
    return {"ids": {ID_KEY: FsspecArtifacts(str(folder / "artifacts")).put(path)}}


@pytest.fixture
def text_data(tmp_path: Path) -> Path:
    recommender.write(tmp_path, as_text(ratings()), as_text(films()))
    return tmp_path


def test_text_ids_give_the_rows_of_integers_with_hashes_as_keys(tmp_path: Path, etl: Etl) -> None:
    recommender.write(tmp_path)
    numbers = etl(spec(tmp_path), inputs=id_key(tmp_path))
    train = pl.read_parquet(numbers.files["train.parquet"])
    recommender.write(tmp_path, as_text(ratings()), as_text(films()))
    texts = etl(spec(tmp_path), inputs=id_key(tmp_path))
    assert numbers.facts["ids"] == {"user": "integer", "item": "integer"} and texts.facts["ids"] == TEXT
    assert texts.facts["rows"] == numbers.facts["rows"]
    assert texts.facts["cardinalities"] == numbers.facts["cardinalities"]
    hashed = train.with_columns(
        pl.col("user").map_elements(lambda user: HASH.key(named("user")(user)), pl.Int64),
        pl.col("item").map_elements(lambda item: HASH.key(named("film é")(item)), pl.Int64),
    )
    columns = ["user", "item", "time", "label"]
    rows = pl.read_parquet(texts.files["train.parquet"])
    assert rows.select(columns).sort(columns).equals(hashed.select(columns).sort(columns))
    assert not [column for column in rows.columns if "id." in column]
    users = pl.read_parquet(texts.files[USER_IDS])
    assert dict(users.iter_rows()) == {HASH.key(user): user for user in as_text(ratings())["userId"].unique()}
    items = pl.read_parquet(texts.files["items.parquet"])
    assert items["movieId"].is_sorted() and items["movieId"].to_list() == [HASH.key(item) for item in items[text_of("movieId")]]


def test_a_csv_has_text_ids_if_one_is_no_integer_or_would_lose_its_zeros(tmp_path: Path, etl: Etl) -> None:
    frame = ratings(12_000)
    last = pl.int_range(pl.len()) == pl.len() - 1  # behind the rows by which types are guessed
    cases = {
        "integer": frame,
        "text": frame.with_columns(userId=pl.when(last).then(pl.lit("A7")).otherwise(pl.col("userId").cast(pl.String))),
    }
    zeros = frame.with_columns(userId=pl.col("userId").cast(pl.String).str.zfill(3))
    for kind, rows in [*cases.items(), ("text", zeros)]:
        rows.write_csv(tmp_path / "ratings.csv")
        films().write_csv(tmp_path / "films.csv")
        data = {"interactions": {"uri": str(tmp_path / "ratings.csv")}, "items": {"uri": str(tmp_path / "films.csv"), "key": "movieId"}}
        outcome = etl(spec(tmp_path, data=data), inputs=id_key(tmp_path))
        assert outcome.facts["ids"] == {"user": kind, "item": "integer"}
        assert outcome.facts["validation"]["read"] == len(frame)
    assert pl.read_parquet(outcome.files[USER_IDS])["id"].min() == "001"


def test_a_fixed_kind_stays(tmp_path: Path, etl: Etl) -> None:
    frame = ratings().with_columns(pl.col("userId").cast(pl.String))
    frame.write_csv(tmp_path / "ratings.csv")
    films().write_csv(tmp_path / "films.csv")
    data = {"interactions": {"uri": str(tmp_path / "ratings.csv")}, "items": {"uri": str(tmp_path / "films.csv"), "key": "movieId"}}
    outcome = etl(spec(tmp_path, data=data), ids=IdKinds("text", "integer"), inputs=id_key(tmp_path))
    assert set(pl.read_parquet(outcome.files[USER_IDS])["id"]) == set(frame["userId"])
    recommender.write(tmp_path, as_text(ratings()), as_text(films()))
    with pytest.raises(BadData, match=r"films.parquet: column 'movieId' is String, but these ids are integers"):
        etl(spec(tmp_path), ids=IdKinds("integer", "integer"), inputs=id_key(tmp_path))
    recommender.write(tmp_path)
    with pytest.raises(BadData, match=r"films.parquet: column 'movieId' is Int64, but these ids are text; write the column as text"):
        etl(spec(tmp_path), ids=IdKinds("text", "text"), inputs=id_key(tmp_path))


def test_bad_text_ids_are_quarantined_as_they_came(text_data: Path, etl: Etl) -> None:
    frame, longest = as_text(ratings()), "x" * 256
    bad = {3: "", 5: longest + "x", 7: "a\0b", 11: "é" * 129, 13: None}
    users = [bad.get(row, user) for row, user in enumerate(frame["userId"])]
    users[17] = longest
    items = [None if row == 19 else "never released" if row == 23 else item for row, item in enumerate(frame["movieId"])]
    frame = frame.with_columns(userId=pl.Series(users), movieId=pl.Series(items))
    recommender.write(text_data, frame, as_text(films()))
    outcome = etl(spec(text_data), inputs=id_key(text_data))
    rejected = pl.read_parquet(text_data / "scratch-0" / "out" / QUARANTINE)
    reasons = dict(rejected.select("row", "reason").iter_rows())
    assert reasons == {
        3: "userId: empty",
        5: "userId: longer than an id",
        7: "userId: has a NUL",
        11: "userId: longer than an id",
        13: "userId: missing",
        19: "movieId: missing",
        23: "movieId: not in the items table",
    }
    assert rejected["userId"].to_list() == [users[row] for row in reasons] and rejected.columns == ["row", "reason", *frame.columns]
    assert longest in set(pl.read_parquet(outcome.files[USER_IDS])["id"])


def test_a_repeated_item_is_reported_with_its_text(text_data: Path, etl: Etl) -> None:
    table = as_text(films())
    recommender.write(text_data, as_text(ratings()), pl.concat([table, table.head(1)]))
    etl(spec(text_data), inputs=id_key(text_data))
    report = (text_data / "scratch-0" / "out" / REPORT).read_text()
    assert "1 rows repeat an earlier row's movieId, such as film é-001" in report


@pytest.fixture
def short_hash(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entity_ids, "BITS", 8)


@pytest.mark.usefixtures("short_hash")
def test_users_with_one_key_are_refused_with_both_ids(tmp_path: Path, etl: Etl) -> None:
    frame = ratings(2000).with_columns(userId=pl.format("u{}", pl.int_range(pl.len()) % 500))
    recommender.write(tmp_path, frame)
    with pytest.raises(BadData, match=r"ratings.parquet: the ids '(u\d+)' and '(u\d+)' have the same key; rename one of them") as raised:
        etl(spec(tmp_path), inputs=id_key(tmp_path))
    first, second = str(raised.value).split("'")[1:4:2]
    assert first != second and HASH.key(first) == HASH.key(second)


@pytest.mark.usefixtures("short_hash")
def test_items_with_one_key_are_refused_in_the_table_and_between_events_and_table(tmp_path: Path, etl: Etl) -> None:
    by_key: dict[int, str] = {}
    names = (f"film {number}" for number in range(10_000))
    name, twin = next((name, by_key[key]) for name in names if by_key.setdefault(key := HASH.key(name), name) != name)
    table = films(2).with_columns(movieId=pl.Series([twin, "other"]))
    rows = ratings().with_columns(movieId=pl.when(pl.col("movieId") > 10).then(pl.lit(twin)).otherwise(pl.lit("other")))
    recommender.write(tmp_path, rows, table)
    assert etl(spec(tmp_path), inputs=id_key(tmp_path)).facts["ids"]["item"] == "text"
    clash = f"the ids '{min(name, twin)}' and '{max(name, twin)}' have the same key; rename one of them"
    recommender.write(
        tmp_path, rows.with_columns(movieId=pl.when(pl.int_range(pl.len()) == 50).then(pl.lit(name)).otherwise("movieId")), table
    )
    with pytest.raises(BadData, match=f"ratings.parquet and films.parquet: {clash}"):
        etl(spec(tmp_path), inputs=id_key(tmp_path))
    recommender.write(tmp_path, rows, pl.concat([table, films(1).with_columns(movieId=pl.lit(name))]))
    with pytest.raises(BadData, match=r"films.parquet: the ids .* have the same key"):
        etl(spec(tmp_path), inputs=id_key(tmp_path))
    events = tmp_path / "events.csv"
    events.write_text(f"user,item,value,time,kind,user_id,item_id\n1,{HASH.key(name)},5,1700000000,click,,{name}\n")
    inputs = id_key(tmp_path) | {"events": {"events.csv": FsspecArtifacts(str(tmp_path / "artifacts")).put(events)}}
    recommender.write(tmp_path, rows, table)
    data = spec(tmp_path).document()["data"]
    data["interactions"]["also"] = "events"
    with pytest.raises(BadData, match=f"events.csv and films.parquet: {clash}"):
        etl(spec(tmp_path, data=data), ids=IdKinds("integer", "text"), inputs=inputs)


def test_events_join_the_file_by_their_ids(text_data: Path, etl: Etl) -> None:
    lines = ["user,item,value,time,kind,user_id,item_id"]
    for number in range(30):
        user, item = "new user", named("film é")(1 + number % 20)
        lines.append(f"{HASH.key(user)},{HASH.key(item)},,{1_800_000_000 + number},click,{user},{item}")
    lines.append("7,8,,1800000000,click,,")  # of an earlier recommender of this name, with integer ids
    events = text_data / "events.csv"
    events.write_text("\n".join(lines) + "\n")
    data = spec(text_data).document()["data"]
    data["interactions"]["also"] = "events"
    inputs = id_key(text_data) | {"events": {"events.csv": FsspecArtifacts(str(text_data / "artifacts")).put(events)}}
    outcome = etl(spec(text_data, data=data, split={"by": "leave_last_out"}), ids=IdKinds("text", "text"), inputs=inputs)
    assert outcome.facts["rows"]["events"] == 30
    assert "new user" in set(pl.read_parquet(outcome.files[USER_IDS])["id"])


def test_a_warm_run_knows_the_users_of_its_parent_and_of_the_events(tmp_path: Path) -> None:
    stages = Stages(tmp_path)
    for name in ("ratings", "items"):
        table = pl.read_parquet(tmp_path / f"{name}.parquet")
        texts = [pl.format(f"{column} {{}}", column).alias(column) for column in ("user", "item") if column in table.columns]
        table.with_columns(texts).write_parquet(tmp_path / f"{name}.parquet")
    spec = stages.spec(model={"family": "mf"}, serve={"batch": {"k": 3}})
    stages.run(spec, more=id_key(tmp_path))
    lines = ["user,item,value,time,kind,user_id,item_id"]
    for number in range(600):
        user, item = f"user {number % 70}", f"item {number % 24}"
        lines.append(f"{HASH.key(user)},{HASH.key(item)},5,{1.7e9 + number},rating,{user},{item}")
    path = tmp_path / "events.csv"
    path.write_text("\n".join(lines) + "\n")
    inputs = id_key(tmp_path) | {"events": {"events.csv": stages.store.put(path)}, "parent": stages.parent}
    done = stages.run(spec, "r2", inputs, mode="warm", ids=IdKinds("text", "text"))
    ids = pl.read_parquet(done["etl"].files[USER_IDS])
    assert set(ids["id"]) == {f"user {number}" for number in (*range(70), NEWCOMER)}
    assert ids["key"].to_list() == sorted(HASH.keys(ids["id"]))
    table = pl.read_parquet(done["export"].files["recommendations.parquet"])
    assert table["user"].null_count() == 0 and "user 65" in set(table["user"]) and set(table["item"]) <= {f"item {n}" for n in range(24)}


def test_a_query_runs_once_though_its_rows_tell_the_kind(tmp_path: Path, etl: Etl, monkeypatch: pytest.MonkeyPatch) -> None:
    connection = sqlite3.connect(tmp_path / "shop.db")
    with connection:
        connection.execute("CREATE TABLE ratings (userId TEXT, movieId TEXT, rating REAL, at REAL)")
        connection.executemany("INSERT INTO ratings VALUES (?, ?, ?, ?)", as_text(ratings()).rows())
    connection.close()
    write_secret(tmp_path / "databases.yaml", f"shop: sqlite:///{tmp_path}/shop.db")
    monkeypatch.setenv("EYAS_DATABASES", str(tmp_path / "databases.yaml"))
    queries = Mock(wraps=sources.query_rows)
    monkeypatch.setattr(sources, "query_rows", queries)
    as_text(films()).write_parquet(tmp_path / "films.parquet")
    data = {
        "interactions": {"query": "SELECT * FROM ratings", "from": "shop"},
        "items": {"uri": str(tmp_path / "films.parquet"), "key": "movieId"},
    }
    outcome = etl(spec(tmp_path, data=data), inputs=id_key(tmp_path))
    assert outcome.facts["ids"] == TEXT
    assert queries.call_count == 1
