"""The benchmarks' own parts run: a small round of each that needs no server."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import polars as pl
import pytest
from onnxruntime import InferenceSession

from benchmarks import (
    batches,
    closed_loop,
    control_loop,
    control_peer,
    drift,
    etl,
    families,
    faults,
    filters,
    kpis,
    lists,
    moments,
    negatives,
    pages,
)
from benchmarks.drift_worlds import SHIFTS
from benchmarks.etl_check import differences
from benchmarks.etl_rows import write_rows
from benchmarks.events_days import days_of_events
from benchmarks.faults_world import slow
from benchmarks.loop_month import Day, Told, interval
from benchmarks.loop_users import Scene, crowds
from benchmarks.rollout_load import Asked
from pipelines.features.raw import item_columns
from services.store.engine import open_engine, sqlite_url
from services.store.migrate import upgrade
from shared.serving.signature import Input, Signature
from tests.support.compaction import SPEC


def test_a_round_of_trivial_runs_ends(tmp_path: Path) -> None:
    speed, held = control_peer._one_round(f"sqlite:///{tmp_path / 'trivial.db'}", 3)
    assert speed > 0
    assert held > 0


def test_transitions_and_delay_are_measured(tmp_path: Path) -> None:
    rows = control_loop.transitions("sqlite", f"sqlite:///{tmp_path / 'a.db'}", 3)
    rows += control_loop.delay("sqlite", f"sqlite:///{tmp_path / 'b.db'}", 3)
    assert all(value > 0 for row in rows for value in row.values if row.metric != "late")


def test_filters_and_upserts_are_measured(tmp_path: Path) -> None:
    writes = filters.catalogue(600)
    state, _, seconds = filters.ledger(writes)
    assert (len(state), seconds > 0) == (600, True)
    rows = [*filters.filtering(state, 600), *filters.upserts("sqlite", sqlite_url(tmp_path / "a.db"), writes)]
    assert all(value > 0 for row in rows for value in row.values)


def test_a_compaction_is_measured_and_changes_nothing_that_etl_reads(tmp_path: Path) -> None:
    engine = open_engine(sqlite_url(tmp_path / "eyas.db"))
    upgrade(engine)
    rows = {(row.contender, row.metric): row.values for row in days_of_events(tmp_path, engine, SPEC, 3_000)}
    engine.dispose()
    assert rows["eyas: Parquet by day", "rows that etl reads differently"] == [0]
    assert rows["eyas: Parquet by day", "interactions"][0] < rows["eyas: CSV, as before", "interactions"][0]


def test_a_day_of_the_closed_loop_is_the_same_for_every_arm_down_to_its_luck() -> None:
    scene = Scene(users=30, items=40, visits=60, organic=3)
    ((_, first), *_), ((_, again), *_) = crowds(scene), crowds(scene)
    assert sorted(first.users[:30]) == sorted(first.users[30:]) == list(range(1, 31))
    shown = scene.worlds()[0].item_ids[:5].tolist()
    for visit in range(60):
        assert first.clicked(visit, shown) == again.clicked(visit, shown)
        assert set(first.clicked(visit, shown[:2])) == set(first.clicked(visit, shown)) & set(shown[:2])
        picked = first.picked(visit)
        assert picked.items.tolist() == again.picked(visit).items.tolist()
        assert 0 < first.promise(visit, shown) < 1
    best = [scene.worlds()[0].best(user, 5).tolist() for user in first.users]
    assert first.oracle() == pytest.approx(sum(first.promise(visit, items) for visit, items in enumerate(best)) / 60)


def test_recovery_counts_whole_days_within_a_phase() -> None:
    scene = Scene(days=6, fashion=2, exchange=4)
    rates = (80, 80, 40, 70, 30, 50)
    days = tuple(Day(day, 100, hits, *interval(hits, 100), hits / 100, 0.9, 0) for day, hits in enumerate(rates))
    told = Told(1, "daily", days, (), 0.0, (), 0.0, 0.0)
    assert [mean for mean, _ in closed_loop.phases(told, scene)] == [0.8, 0.55, 0.4]
    assert closed_loop.recovery(told, scene, 2, 0.7) == 1
    assert closed_loop.recovery(told, scene, 2, 0.4) == 0
    assert closed_loop.recovery(told, scene, 4, 0.7) is None
    low, high = interval(30, 100)
    assert (round(low, 3), round(high, 3)) == (0.219, 0.396)
    root = ElementTree.fromstring(closed_loop.picture([told], scene))
    assert len(root.findall(".//{*}polyline")) == 2


def test_drift_is_found_where_it_was_planted_and_alone_there() -> None:
    stable = drift.stable_planted(1, 2, 3)
    assert stable.looks == 9
    assert "all" not in stable.alarms
    moved = drift.shifted_planted(2, replace(SHIFTS[0], genre=0.7), 3)
    missed, median, *_ = drift.delays("case", [moved], "psi", "eyas: psi", drift.WINDOW, "likes")
    assert list(missed.values) == [0]
    assert 0 < median.values[0] <= 2 * drift.WINDOW


def test_a_slow_version_passes_a_trial_and_takes_its_time_over_candidates() -> None:
    session = InferenceSession(slow(10), providers=["CPUExecutionProvider"])
    rows = np.arange(200)
    assert session.run(["score"], {"user": rows, "item": rows})[0].shape == (200,)


@pytest.mark.parametrize(
    ("failure", "version", "found"),
    [
        ("", 2, "its own"),
        ("", 1, "the version before"),
        ("200: scoring unavailable", 2, "scoring unavailable"),
        ("503: 'films' serves nothing yet", 0, "503"),
        ("TimeoutError: timed out", 0, "TimeoutError: timed out"),
    ],
)
def test_what_a_request_came_to_is_told_apart(failure: str, version: int, found: str) -> None:
    assert faults.kind(Asked(0.0, 0.1, version, "stable", failure), 2) == found


def test_what_questions_of_kpis_cost_is_measured(tmp_path: Path) -> None:
    engine = open_engine(sqlite_url(tmp_path / "a.db"))
    upgrade(engine)
    kpis.fill(engine, 2_000)
    rows = kpis.measured(engine, "SQLite", 2_000)
    assert len(rows) == 16
    assert all(value > 0 for row in rows if row.metric == "clock" for value in row.values)
    engine.dispose()


def test_rows_with_what_counted_of_their_users_are_measured(tmp_path: Path) -> None:
    rows, found = write_rows(tmp_path / "rows.parquet", 3_000), {}
    for count in (0, 2_000):
        out = tmp_path / str(count)
        out.mkdir()
        writes = moments.write_values(tmp_path / f"{count}.jsonl", count)
        found[count] = [etl.watched([sys.executable, "-m", "benchmarks.moments_eyas", str(rows), str(writes), str(out)])]
        assert len(pl.read_parquet(out / "rows.parquet")) == 3_000
    assert len(pl.read_parquet(tmp_path / "2000" / "users.parquet")) > len(pl.read_parquet(tmp_path / "0" / "users.parquet"))
    assert all(value > 0 for row in moments.table(found, 3_000) for value in row.values)


@pytest.mark.parametrize("kind", ["text", "full lists of int64"])
def test_lists_are_sent_as_they_are_counted(kind: str) -> None:
    table = lists.items(kind)
    values, width = table["words"].list.len(), lists.WIDTH
    assert (values.max(), values.min()) == (width, width if kind.startswith("full") else 1)
    keys = [Input(name="userId", dtype="int64", side="user"), Input(name="movieId", dtype="int64", side="item")]
    words = Input(name="words", dtype="string" if kind == "text" else "int64", width=width, side="item")
    padded, offsets = (
        Signature(user="userId", item="movieId", inputs=(*keys, words.model_copy(update={"lists": layout}))) for layout in lists.LAYOUTS
    )
    columns = item_columns(table, padded)
    sizes = [lists.size_of(one, lists.feeder(one, columns, lists.ITEMS)(0)) for one in (padded, offsets)]
    each = 4 if kind == "text" else 8
    missing = lists.ITEMS * width - int(values.sum())
    assert sizes[0] - sizes[1] == each * missing - 8 * (lists.ITEMS + 1)


def test_rows_of_the_etl_benchmark_are_the_same_ones_for_the_same_number(tmp_path: Path) -> None:
    rows, again = write_rows(tmp_path / "a.parquet", 3_000), write_rows(tmp_path / "b.parquet", 3_000)
    assert rows.read_bytes() == again.read_bytes()
    frame = pl.read_parquet(rows)
    assert frame["timestamp"].n_unique() == len(frame) == 3_000
    assert frame["timestamp"].is_sorted()
    assert 1.8 < frame["genres"].list.len().mean() < 2.2


def test_what_etl_makes_for_a_family_is_measured(tmp_path: Path) -> None:
    families.write(tmp_path, 3_000)
    found = families.etl(tmp_path, "popularity", 0)
    assert (found["features"], found["inputs of the served unit"]) == (2, 2)
    assert all(value > 0 for value in found.values())


def test_a_contender_of_the_etl_benchmark_is_measured_and_what_it_does_differently_is_said(tmp_path: Path) -> None:
    (contender,) = (one for one in etl.CONTENDERS if one.name == etl.REFERENCE)
    found = etl.measured([contender], tmp_path, 3_000, 2)
    assert {row.metric for row in etl.table(found, 3_000, 0)} == {"throughput", "peak memory"}
    assert all(run.seconds > 0 and run.mebibytes > 0 for run in found[etl.REFERENCE, 3_000])
    ours = etl.place(tmp_path, etl.REFERENCE)
    assert differences(ours, ours) == []
    (tmp_path / "other").mkdir()
    frame = pl.read_parquet(ours / "rows.parquet")
    other = frame.with_columns(pl.col("userId_code") + 1, pl.col("movieId_te") + 0.5, genres=pl.col("genres").list.head(1))
    other.drop("label").write_parquet(tmp_path / "other" / "rows.parquet")
    said = differences(ours, tmp_path / "other")
    assert said[:1] == ["no column label"]
    assert any(one.startswith("userId_code: the same values by other codes") for one in said)
    assert any(one.startswith("movieId_te: 100.00% of the values differ") for one in said)
    assert any(one.startswith("genres: other numbers") for one in said)


def test_views_of_pages_are_measured_and_change_nothing_where_no_sequence_shows_them(tmp_path: Path) -> None:
    pages.write(tmp_path, 3_000)
    rows, same = pages.measured(tmp_path, 3_000, 1)
    assert same and {row.contender for row in rows} == set(pages.CONTENDERS)
    assert all(value > 0 for row in rows for value in row.values)


def test_what_may_tell_liked_from_not_liked_agrees_but_for_what_a_filter_calls_liked() -> None:
    wrong = {
        row.contender: row.values[0] for row in negatives.measured("small", 200, 300, 6_000, 1) if row.metric == "called liked wrongly"
    }
    assert set(wrong) == set(negatives.CONTENDERS)
    assert {name for name, share in wrong.items() if share} == {"blocked Bloom filter"} and wrong["blocked Bloom filter"] < 1


def test_trainings_batches_are_measured(tmp_path: Path) -> None:
    folder = batches.published(tmp_path, 3_000)
    for contender, taken in ((name, batches.eaten(folder, *said)) for name, said in batches.CONTENDERS.items()):
        assert taken["speed"] > 0 and ("liked, read in" in taken) == contender.endswith("verified")
