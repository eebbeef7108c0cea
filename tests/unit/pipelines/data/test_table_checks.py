"""Tables of items and users are judged as interactions are, and interactions of unknown items are kept apart: nothing is lost."""

from __future__ import annotations

import logging
from itertools import product
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.data.catalogue import read_items, read_users
from pipelines.data.item_membership import is_known
from pipelines.data.sources import ReadableRoots
from pipelines.data.validation.page import page
from pipelines.data.validation.profile import Profile
from pipelines.data.validation.tableprofile import TableProfile
from pipelines.data.validation.tables import JudgedTable, judge_tables
from pipelines.stages.etl import run
from pipelines.stages.runner import Context
from shared.artifacts.store import FsspecArtifacts
from shared.contracts.spec import RecommenderSpec
from shared.contracts.stage import StageSpec
from shared.contracts.validation_report import ACCEPTED, EVENTS_QUARANTINE, PAGE, PROFILE, QUARANTINE, REPORT, TABLE_QUARANTINE, Report
from shared.domain.errors import BadData, Invalid
from shared.stage_process import Outcome
from tests.unit.pipelines.recommender import films, ratings, spec, write

ANYTHING = {"bad_rows": {"stop": None}}
SIDES = ("items", "users")


def people(count: int = 29) -> pl.DataFrame:
    return pl.DataFrame(
        {"person": range(1, count + 1), "age": [20 + n % 40 for n in range(count)], "country": ["de", "fr", None] * 9 + ["it"] * 2}
    )


def told(
    folder: Path, items: dict[str, Any] | None = None, users: dict[str, Any] | None = None, ending: str = "parquet", **validation: Any
) -> RecommenderSpec:
    """`items`, `users`: what is wished of the tables."""
    data = spec(folder).document()["data"]
    data["items"] |= {"uri": str(folder / f"films.{ending}"), "validate": items or {}}
    data["users"] = {"uri": str(folder / f"people.{ending}"), "key": "person", "validate": users or {}}
    return spec(folder, data=data | {"validate": validation})


def judged(
    side: str, table: pl.DataFrame, folder: Path, accepted: TableProfile | None = None, text: str | None = None, **validation: Any
) -> JudgedTable:
    """One of the tables, beside another that is right. `text`: the whole of a CSV in its place."""
    write(folder)
    ending = "csv" if text is not None else "parquet"
    tables = {"items": films(), "users": people(), side: table}
    for name, frame in (("films", tables["items"]), ("people", tables["users"])):
        path = folder / f"{name}.{ending}"
        frame.write_csv(path) if text is not None else frame.write_parquet(path)
    if text is not None:
        (folder / ("films.csv" if side == "items" else "people.csv")).write_text(text)
    found = judge_tables(
        told(folder, ending=ending, **{side: validation}),
        ReadableRoots((str(folder),), folder / "sources"),
        {side: accepted} if accepted else {},
        folder,
        folder / "scratch",
    )
    chosen = found.items if side == "items" else found.users
    assert chosen is not None
    return chosen


def apart(side: str, folder: Path) -> pl.DataFrame:
    return pl.read_parquet(folder / TABLE_QUARANTINE[side])  # type: ignore[index]


def crossed(found: JudgedTable, verdict: str = "warn") -> set[str]:
    return {f"{one.name} {one.column}" if one.column else one.name for one in found.section.checks if one.verdict == verdict}


KEYS = {"items": "movieId", "users": "person"}
NUMBERS = {"items": "year", "users": "age"}


def table(side: str) -> pl.DataFrame:
    return films() if side == "items" else people()


@pytest.mark.requirement("G-05", "G-29")
def test_a_sound_table_passes_and_is_used_as_it_is(subtests: pytest.Subtests, tmp_path: Path) -> None:
    for number, side in enumerate(SIDES):
        with subtests.test(side=side):
            folder = tmp_path / str(number)
            folder.mkdir()
            found = judged(side, table(side), folder)
            assert found.section.verdict == "pass" and found.section.rows.kept == len(table(side))
            assert found.source.frame.collect().equals(table(side))
            assert not (folder / "quarantine").exists()


FAULTS: list[tuple[str, Any, str]] = [
    ("key", None, "{key}: missing"),
    ("key", -3, "{key}: below 0"),
    ("key", 1, "repeats an earlier row"),
    ("number", 1, "{number}: below 10"),
    ("number", 3000, "{number}: above 2100"),
]


def test_a_bad_row_of_a_table_is_quarantined_with_its_reason_and_the_others_are_used(subtests: pytest.Subtests, tmp_path: Path) -> None:
    for number, (side, (what, value, reason)) in enumerate(product(SIDES, FAULTS)):
        with subtests.test(side=side, what=what, value=value):
            folder = tmp_path / str(number)
            folder.mkdir()
            column = (KEYS if what == "key" else NUMBERS)[side]
            broken = table(side).with_columns(pl.when(pl.int_range(pl.len()) == 7).then(pl.lit(value)).otherwise(column).alias(column))
            found = judged(side, broken, folder, range={NUMBERS[side]: [10, 2100]}, **ANYTHING)
            said = reason.format(key=KEYS[side], number=NUMBERS[side])
            assert found.section.reasons == {said: 1} and found.section.verdict == "warn"
            rows = apart(side, folder)
            assert rows["row"].to_list() == [7] and rows["reason"].to_list() == [said]
            assert rows.drop("row", "reason").equals(broken[7], null_equal=True)
            assert found.source.frame.collect().equals(pl.concat([broken[:7], broken[8:]]), null_equal=True)


def test_of_rows_with_one_key_the_first_good_one_counts(tmp_path: Path) -> None:
    other = films().with_columns(year=pl.when(pl.col("movieId") < 3).then(9999).otherwise(2020).cast(pl.Int64))
    found = judged("items", pl.concat([other, films()]), tmp_path, range={"year": [None, 2100]}, **ANYTHING)
    years = dict(read_items(found.source, told(tmp_path)).select("movieId", "year").iter_rows())
    assert years[1] == films()["year"][0] and years[2] == films()["year"][1], "the first ones of 1 and 2 are bad"
    assert set(list(years.values())[2:]) == {2020}
    assert found.section.reasons == {"year: above 2100": 2, "repeats an earlier row": 18}


def test_in_a_text_file_what_is_no_number_is_one_rows_fault_however_late_it_comes(subtests: pytest.Subtests, tmp_path: Path) -> None:
    for side in SIDES:
        with subtests.test(side=side):
            folder = tmp_path / side
            folder.mkdir()
            key, number = KEYS[side], NUMBERS[side]
            lines = [f"{n},{1900 + n % 100},x" for n in range(1, 12_001)]
            lines[11_000], lines[11_500], lines[11_600] = "oops,1999,x", "11501,unknown,x", " 11601 ,,x"
            found = judged(side, table(side), folder, text="\n".join([f"{key},{number},word", *lines]), range={number: [1900, 2000]})
            assert found.section.reasons == {f"{key}: not an integer": 1, f"{number}: not a number": 1}
            assert [check.says for check in found.section.checks if check.name == "not a number"] == [
                f"column '{number}' has 1 values that are not a number, such as 'unknown' (less than 0.01% of the rows)"
            ]
            rows = apart(side, folder)
            assert rows.select("row", key, number).rows() == [(11_000, "oops", "1999"), (11_500, "11501", "unknown")], "as they came"
            reader = read_items if side == "items" else read_users
            used = reader(found.source, told(folder, ending="csv"))
            assert used.columns[1:] == [number, "word"] and used.dtypes == [pl.Int64, pl.Int64, pl.String]
            assert len(used) == 11_998 and used.filter(pl.col(number).is_null())[used.columns[0]].to_list() == [11_601]


def test_fractions_of_a_text_file_stay_fractions_and_keys_of_text_are_refused(tmp_path: Path) -> None:
    found = judged("users", people(), tmp_path, text="person,age\n1,20\n2,20.5\n3,inf\n", range={"age": [0, None]})
    assert found.source.frame.collect()["age"].to_list() == [20.0, 20.5, float("inf")]
    found = judged("users", people(), tmp_path, text="person,age\nann,20\nbob,21\n")
    (stopped,) = [check for check in found.section.checks if check.name == "not an integer"]
    assert stopped.verdict == "stop" and "such as 'ann'; these ids are integers" in stopped.says


def test_columns_that_are_called_otherwise_are_read_value_by_value_too(tmp_path: Path) -> None:
    write(tmp_path)
    (tmp_path / "films.csv").write_text("id,made\n1,1990\nx,1991\n3,soon\n")
    items = {"uri": str(tmp_path / "films.csv"), "key": "movieId", "names": {"movieId": "id", "year": "made"}}
    data = spec(tmp_path).document()["data"] | {"items": items | {"validate": {"range": {"year": [1900, 2030]}}}}
    outcome = judge_tables(
        spec(tmp_path, data=data), ReadableRoots((str(tmp_path),), tmp_path / "sources"), {}, tmp_path, tmp_path / "scratch"
    ).items
    assert outcome.section.reasons == {"movieId: not an integer": 1, "year: not a number": 1}
    assert outcome.source.frame.collect().rows() == [(1, 1990)]


CELLS = st.one_of(st.none(), st.integers(-2, 6), st.sampled_from([2**63 - 1, -(2**63)]))


@pytest.mark.parametrize("side", SIDES)
@settings(max_examples=10, deadline=None)
@given(rows=st.lists(st.tuples(CELLS, CELLS, st.sampled_from(["a", "b", None])), min_size=1, max_size=20))
def test_what_is_read_of_a_table_is_kept_or_quarantined_and_never_both(
    side: str, rows: list[Any], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("any")
    frame = pl.DataFrame(rows, schema={KEYS[side]: pl.Int64, NUMBERS[side]: pl.Int64, "word": pl.String}, orient="row").with_row_index(
        "number"
    )
    found = judged(side, frame, folder, range={NUMBERS[side]: [0, 5]}, **ANYTHING)
    kept, path = found.source.frame.collect(), folder / TABLE_QUARANTINE[side]  # type: ignore[index]
    bad = pl.read_parquet(path) if path.exists() else pl.DataFrame({"number": [], "reason": []})
    assert sorted([*kept["number"], *bad["number"]]) == list(range(len(rows)))
    assert (found.section.rows.kept, found.section.rows.quarantined) == (len(kept), len(bad))
    assert all(bad["reason"]) and kept[KEYS[side]].is_unique().all() and (kept[KEYS[side]] >= 0).all()
    known = {reason for text in bad["reason"] for reason in text.split("; ")}
    assert known == found.section.reasons.keys()


BAD_SETTINGS: list[tuple[dict[str, Any], str]] = [
    ({"nulls": {"stars": 0}}, r"data\.items\.validate: column 'stars' is not in films\.parquet; columns: movieId, genres, year"),
    (
        {"range": {"genres": [0, 1]}},
        r"data\.items\.validate\.range: column 'genres' of films\.parquet is String; only numbers have a range",
    ),
]


def test_what_a_table_cannot_keep_to_is_said(subtests: pytest.Subtests, tmp_path: Path) -> None:
    for validation, message in BAD_SETTINGS:
        with subtests.test(validation=validation), pytest.raises(Invalid, match=message):
            judged("items", films(), tmp_path, **validation)


def remembered(side: str, frame: pl.DataFrame, folder: Path) -> TableProfile:
    found = judged(side, frame, folder).profile
    assert found is not None
    return TableProfile.model_validate_json(found.model_dump_json())


def catalogue(count: int, start: int = 1, **more: Any) -> pl.DataFrame:
    keys = pl.int_range(start, start + count, eager=True)
    frame = pl.DataFrame({"movieId": keys, "genres": "Drama", "year": 1990 + keys % 30, "studio": (keys % 7).cast(pl.String)})
    return frame.with_columns(**more)


def test_what_is_gone_and_what_is_new_is_told_of_few_keys_and_of_many(subtests: pytest.Subtests, tmp_path: Path) -> None:
    for number, count in enumerate([1000, 40_000]):
        with subtests.test(count=count):
            folder = tmp_path / str(number)
            folder.mkdir()
            before = remembered("items", catalogue(count), folder)
            assert crossed(judged("items", catalogue(count), folder, before)) == set()
            found = judged("items", catalogue(count, start=count // 4 + 1), folder, before)
            figures = {one.name: one.figure for one in found.section.checks if one.column == "movieId"}
            slack = 0.0 if count == 1000 else 0.05
            assert abs(figures["gone"] - 0.25) <= slack and abs(figures["unseen"] - 0.25) <= slack
            assert crossed(found) == {"gone movieId"}
            assert "of the last accepted table's" in next(one.says for one in found.section.checks if one.name == "gone")


def test_values_that_nobody_has_seen_and_values_that_have_moved_are_told(tmp_path: Path) -> None:
    before = remembered("items", catalogue(3000), tmp_path)
    renamed = catalogue(3000, studio=pl.lit("s") + pl.col("studio"))
    assert {"unseen studio", "drift studio"} <= crossed(judged("items", renamed, tmp_path, before))
    later = catalogue(3000, year=pl.col("year") + 10)
    assert crossed(judged("items", later, tmp_path, before)) == {"drift year"}
    strict = judged("items", later, tmp_path, before, drift={"stop": 0.2})
    assert crossed(strict, "stop") == {"drift year"}
    dropped = judged("items", catalogue(3000).drop("studio"), tmp_path, before)
    assert "column 'studio' is missing; the last accepted batch has it" in [check.says for check in dropped.section.checks]


def test_a_profile_of_a_large_table_stays_small(tmp_path: Path) -> None:
    large = catalogue(60_000, title=pl.lit("title ") + pl.col("movieId").cast(pl.String))
    assert len(remembered("items", large, tmp_path).model_dump_json()) < 60_000


@settings(max_examples=100, deadline=None)
@given(
    keys=st.sets(st.one_of(st.integers(-5, 40), st.integers(-(2**63), 2**63 - 1)), max_size=12),
    asked=st.lists(st.one_of(st.none(), st.integers(-8, 45), st.integers(-(2**63), 2**63 - 1)), max_size=30),
)
def test_an_item_is_known_where_the_table_has_it(keys: set[int], asked: list[int | None]) -> None:
    known = pl.Series(sorted(keys), dtype=pl.Int64).to_numpy()
    frame = pl.DataFrame({"item": pl.Series([*asked, *keys], dtype=pl.Int64)})
    found = frame.select(is_known("item", known)).to_series().to_list()
    assert found == [one is None or one in keys for one in (*asked, *keys)]


# The stage


def _context(folder: Path, recommender: RecommenderSpec, name: str = "scratch", **more: Any) -> Context:
    store = FsspecArtifacts(str(folder / "artifacts"))
    stage = StageSpec(
        stage="etl", run="r", attempt="r-etl-1", recommender=recommender, data_roots=(str(folder),), artifacts=store.url, **more
    )
    (folder / name).mkdir()
    return Context(stage, folder / name, store, logging.getLogger("test"))


def _report(folder: Path, name: str = "scratch") -> Report:
    return Report.model_validate_json((folder / name / "out" / REPORT).read_text())


def _put(folder: Path, outcome: Outcome, name: str = PROFILE) -> Any:
    return {name: FsspecArtifacts(str(folder / "artifacts")).put(outcome.files[name])}


@pytest.mark.requirement("G-05")
def test_interactions_of_unknown_items_are_quarantined_with_their_reason_and_counted_apart(tmp_path: Path) -> None:
    rows = ratings(2000).with_columns(userId=pl.when(pl.int_range(pl.len()) % 100 == 7).then(None).otherwise("userId"))
    write(tmp_path, rows, films(15))
    context = _context(tmp_path, spec(tmp_path))
    outcome = run(context)
    strange = rows.with_row_index("row").filter(pl.col("movieId") > 15, pl.col("userId").is_not_null())
    bad = pl.read_parquet(context.out(QUARANTINE))
    assert bad.filter(pl.col("reason") == "movieId: not in the items table").drop("reason").equals(strange)
    assert len(bad) == len(strange) + 20 and set(context.diagnostic_files) == {REPORT, PAGE, QUARANTINE}
    report = _report(tmp_path)
    assert report.reasons == {"userId: missing": 20, "movieId: not in the items table": len(strange)}
    figures = {one.name: (one.verdict, one.figure) for one in report.checks}
    assert figures["unknown items"] == ("warn", pytest.approx(len(strange) / 2000)) and figures["bad rows"] == ("warn", 0.01)
    assert outcome.facts["rows"]["dropped"] == len(strange) and outcome.facts["rows"]["quarantined"] == len(bad)
    assert sum(outcome.metrics[f"rows.{side}"] for side in ("train", "holdout")) == 2000 - len(bad)
    assert "not in the items table" in context.out(PAGE).read_text()


def test_a_share_of_unknown_items_stops_where_the_spec_says_so(tmp_path: Path) -> None:
    write(tmp_path, ratings(2000), films(15))
    data = spec(tmp_path).document()["data"]
    recommender = spec(tmp_path, data=data | {"validate": {"unknown_items": {"stop": "10%"}}})
    message = r"ratings\.parquet: [0-9]+ rows have items that are not in the items table films\.parquet, such as 16 \(.*%\ of the rows\); "
    with pytest.raises(BadData, match=message + r"data\.validate allows 10%: see"):
        run(_context(tmp_path, recommender))
    assert len(pl.read_parquet(tmp_path / "scratch/out" / QUARANTINE)) == _report(tmp_path).rows.quarantined > 0


def test_bad_rows_of_tables_are_published_and_too_many_stop_the_run_in_one_line(tmp_path: Path) -> None:
    write(tmp_path, items=pl.concat([films(), films(1)]))
    pl.concat([people(), people()[:2]]).write_parquet(tmp_path / "people.parquet")
    context = _context(tmp_path, told(tmp_path, items={"bad_rows": {"stop": "6%"}}))
    with pytest.raises(BadData) as caught:
        run(context)
    assert "\n" not in str(caught.value)
    said = (
        "people.parquet: 2 rows repeat an earlier row's person, such as 1 (6.45% of the rows); data.users.validate allows 5%; 1 more: see"
    )
    assert str(caught.value).startswith(said)
    assert {REPORT, PAGE, *TABLE_QUARANTINE.values()} == set(context.diagnostic_files)
    assert {one.name: one.verdict for one in _report(tmp_path).sections} == {"items": "warn", "users": "stop"}
    text = context.out(PAGE).read_text()
    assert "Table of users: people.parquet" in text and TABLE_QUARANTINE["items"] in text
    again = run(_context(tmp_path, told(tmp_path, items=ANYTHING, users=ANYTHING), "again"))
    assert again.metrics["rows.items"] == 20 and again.facts["validation"]["users"] == {"read": 31, "kept": 29, "quarantined": 2}
    assert "users: bad rows" in again.facts["validation"]["warned"]


def test_a_table_without_a_usable_row_is_refused_whatever_thresholds_say(tmp_path: Path) -> None:
    write(tmp_path, items=films().with_columns(movieId=-pl.col("movieId") - 1))
    people().write_parquet(tmp_path / "people.parquet")
    with pytest.raises(BadData, match=r"films\.parquet: no usable rows"):
        run(_context(tmp_path, told(tmp_path, items=ANYTHING)))


def test_tables_are_compared_with_those_of_the_accepted_batch(tmp_path: Path) -> None:
    write(tmp_path, ratings(2000))
    people().write_parquet(tmp_path / "people.parquet")
    first = run(_context(tmp_path, told(tmp_path), "first"))
    assert set(Profile.model_validate_json(first.files[PROFILE].read_text()).tables) == set(SIDES)
    people(29)[10:].with_columns(age=pl.col("age") + 40).write_parquet(tmp_path / "people.parquet")
    inputs = {ACCEPTED: _put(tmp_path, first)}
    second = run(_context(tmp_path, told(tmp_path), "second", inputs=inputs))
    assert {"users: gone person", "users: drift age"} <= set(second.facts["validation"]["warned"])
    assert [one.compared for one in _report(tmp_path, "second").sections] == [True, True]
    assert "<h2>Table of users" in page(_report(tmp_path, "second"))
    with pytest.raises(BadData, match=r"people\.parquet: 34\.5% of the last accepted table's 29 keys are missing; data\.users\."):
        run(_context(tmp_path, told(tmp_path, users={"gone": {"stop": "30%"}}), "third", inputs=inputs))


def _events(folder: Path, rows: pl.DataFrame) -> Any:
    path = folder / "events.csv"
    rows.select(user="userId", item="movieId", value="rating", time=pl.col("at") + 1e7).write_csv(path)
    return {"events.csv": FsspecArtifacts(str(folder / "artifacts")).put(path)}


def test_events_of_unknown_items_are_quarantined_beside_a_file_and_in_a_warm_run(tmp_path: Path) -> None:
    write(tmp_path, ratings(2000))
    people().write_parquet(tmp_path / "people.parquet")
    recommender = told(tmp_path)
    data = recommender.document()["data"]
    also = spec(tmp_path, data=data | {"interactions": data["interactions"] | {"also": "events"}})
    given = ratings(600, seed=3).with_columns(movieId=pl.when(pl.int_range(pl.len()) % 60 == 1).then(777).otherwise("movieId"))
    events = _events(tmp_path, given)
    context = _context(tmp_path, also, "beside", inputs={"events": events})
    full = run(context)
    assert EVENTS_QUARANTINE in context.diagnostic_files and QUARANTINE not in context.diagnostic_files
    bad = pl.read_parquet(context.out(EVENTS_QUARANTINE))
    assert bad["row"].to_list() == list(range(1, 600, 60)) and bad["item"].unique().to_list() == [777]
    assert bad["reason"].unique().to_list() == ["item: not in the items table"]
    assert bad.columns == ["row", "reason", "user", "item", "value", "time", "kind"]
    assert full.facts["rows"]["dropped"] == 10 and full.facts["rows"]["events"] == 600
    assert {one.name: one.rows.quarantined for one in _report(tmp_path, "beside").sections} == {"items": 0, "users": 0, "events": 10}

    store = FsspecArtifacts(str(tmp_path / "artifacts"))
    parent = {name: store.put(path) for name, path in full.files.items()}
    people()[5:].write_parquet(tmp_path / "people.parquet")
    context = _context(tmp_path, recommender, "warm", inputs={"events": events, "parent": parent}, mode="warm")
    warm = run(context)
    report = _report(tmp_path, "warm")
    assert (report.source, report.rows.read, report.rows.kept, report.rows.quarantined) == ("events.csv", 600, 590, 10)
    text = context.out(PAGE).read_text()
    assert EVENTS_QUARANTINE in text and QUARANTINE not in text
    assert {REPORT, PAGE, EVENTS_QUARANTINE} == set(context.diagnostic_files) and warm.facts["rows"]["dropped"] == 10
    assert "users: unseen person" not in warm.facts["validation"]["warned"] and report.sections[1].compared
    tables = {name: Profile.model_validate_json(one.files[PROFILE].read_text()) for name, one in (("full", full), ("warm", warm))}
    assert tables["warm"].tables["users"].rows == 24 and tables["full"].tables["users"].rows == 29
    assert tables["warm"].model_copy(update={"tables": {}}) == tables["full"].model_copy(update={"tables": {}})


def test_a_file_is_learned_from_though_events_beside_it_say_nothing_or_are_all_of_unknown_items(tmp_path: Path) -> None:
    write(tmp_path, ratings(2000))
    data = spec(tmp_path).document()["data"]
    also = spec(tmp_path, data=data | {"interactions": data["interactions"] | {"also": "events"}})
    for name, rows in (("none", ratings(50)[:0]), ("unknown", ratings(50).with_columns(movieId=pl.col("movieId") + 900))):
        found = run(_context(tmp_path, also, name, inputs={"events": _events(tmp_path, rows)}))
        assert found.facts["rows"]["events"] == found.facts["rows"]["dropped"] == len(rows)
        assert sum(found.metrics[f"rows.{side}"] for side in ("train", "holdout")) == 2000


def test_events_that_are_all_of_unknown_items_refuse_a_warm_run(tmp_path: Path) -> None:
    write(tmp_path)
    full = run(_context(tmp_path, spec(tmp_path), "full"))
    parent = {name: FsspecArtifacts(str(tmp_path / "artifacts")).put(path) for name, path in full.files.items()}
    events = _events(tmp_path, ratings(600).with_columns(movieId=pl.col("movieId") + 900))
    with pytest.raises(BadData, match=r"events\.csv: no item is in the items table films\.parquet; check data\.items\.key"):
        run(_context(tmp_path, spec(tmp_path), "warm", inputs={"events": events, "parent": parent}, mode="warm"))
    assert len(pl.read_parquet(tmp_path / "warm/out" / EVENTS_QUARANTINE)) == 600
