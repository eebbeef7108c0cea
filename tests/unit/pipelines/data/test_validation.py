"""A batch is judged before anything is learned from it: each fault is named, bad rows are kept apart, and nothing is lost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.data.sources import SourceRows
from pipelines.data.validation.judging import Judged, judge, refusal
from pipelines.data.validation.page import page
from pipelines.data.validation.profile import Profile
from shared.contracts.validation_report import Check, Report
from shared.domain.errors import Invalid
from tests.support.validation_batches import some, validated_spec, world

NOW = 1.7e9


def judged(frame: pl.DataFrame, folder: Path, accepted: Profile | None = None, **validation: Any) -> Judged:
    source = SourceRows("ratings.parquet", (), frame.lazy())
    return judge(source, validated_spec(folder, **validation), accepted, NOW, folder / "quarantine.parquet", folder / "scratch")


def crossed(report: Report, verdict: str = "warn") -> set[str]:
    return {f"{one.name} {one.column}" if one.column else one.name for one in report.checks if one.verdict == verdict}


def check(report: Report, name: str) -> Check:
    (found,) = [one for one in report.checks if name in {f"{one.name} {one.column}", one.name}]
    return found


@pytest.mark.requirement("G-05")
def test_a_sound_batch_passes_and_is_used_as_it_is(tmp_path: Path) -> None:
    found = judged(world(), tmp_path)
    assert found.report.verdict == "pass" and refusal(found.report) is None
    assert found.source.frame.collect().equals(world())
    assert not (tmp_path / "quarantine.parquet").exists()


ROWS: list[tuple[str, Any, str]] = [
    ("userId", None, "userId: missing"),
    ("movieId", -3, "movieId: below 0"),
    ("rating", float("nan"), "rating: missing"),
    ("rating", float("-inf"), "rating: not finite; rating: below 0.5"),
    ("rating", 17.0, "rating: above 5"),
    ("at", None, "at: missing"),
    ("at", NOW + 90_000, "at: in the future"),
    ("at", 1.6e12, "at: not in seconds"),
    ("at", float("inf"), "at: not finite"),
]


def test_bad_rows_are_quarantined_with_their_reasons(subtests: pytest.Subtests, tmp_path: Path) -> None:
    for number, (column, value, reason) in enumerate(ROWS):
        with subtests.test(reason=reason):
            folder = tmp_path / str(number)
            folder.mkdir()
            frame = world().with_columns(some(column, value))
            found = judged(frame, folder, range={"rating": [0.5, 5]})
            apart = pl.read_parquet(folder / "quarantine.parquet")
            assert apart["row"].to_list() == list(range(7, 4000, 50))
            assert apart["reason"].unique().to_list() == [reason]
            assert apart.drop("row", "reason").equals(frame[apart["row"]], null_equal=True)
            rows = found.report.rows
            assert (rows.read, rows.kept, rows.quarantined) == (4000, 3920, 80)
            assert found.source.frame.collect().equals(frame.filter(pl.int_range(pl.len()) % 50 != 7))
            assert found.report.reasons == dict.fromkeys(reason.split("; "), 80)
            assert found.report.verdict == "warn", "2% are more than 0.1% and less than 5%"


def test_rows_that_must_be_unique_are_so_and_the_first_stays(tmp_path: Path) -> None:
    frame = pl.concat([world(), world()[:100]]).with_columns(some("userId", None))
    found = judged(frame, tmp_path, unique=["userId", "movieId", "at"])
    kept = found.source.frame.collect()
    good = frame.filter(pl.col("userId").is_not_null())
    assert kept.equals(good.unique(["userId", "movieId", "at"], keep="first", maintain_order=True))
    apart = pl.read_parquet(tmp_path / "quarantine.parquet")
    assert len(kept) + len(apart) == len(frame) and apart["row"].is_sorted()
    assert set(apart["reason"]) == {"userId: missing", "repeats an earlier row"}


VALUES = st.one_of(st.none(), st.sampled_from([float("nan"), float("inf"), -1.0, 0.0, 3.0, 9.0, NOW, NOW * 1000, NOW + 1e6]))


@settings(max_examples=30)
@given(
    rows=st.lists(st.tuples(st.one_of(st.none(), st.integers(-2, 3)), st.integers(0, 2), VALUES, VALUES), min_size=1, max_size=30),
    unique=st.booleans(),
)
def test_what_is_read_is_kept_or_quarantined_and_never_both(
    rows: list[Any], unique: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("any")
    schema = {"userId": pl.Int64, "movieId": pl.Int64, "rating": pl.Float64, "at": pl.Float64}
    frame = pl.DataFrame(rows, schema=schema, orient="row").with_row_index("number")
    validation = {"range": {"rating": [0, 5]}, "unique": ["userId", "movieId"] if unique else []}
    outcome = judged(frame, folder, **validation)
    good_rows, path = outcome.source.frame.collect(), folder / "quarantine.parquet"
    apart = pl.read_parquet(path) if path.exists() else pl.DataFrame({"number": [], "reason": []})
    assert sorted([*good_rows["number"], *apart["number"]]) == list(range(len(rows)))
    assert (outcome.report.rows.kept, outcome.report.rows.quarantined) == (len(good_rows), len(apart))
    assert all(apart["reason"]) and good_rows.filter(pl.any_horizontal(pl.all().is_null())).is_empty()


def test_thresholds_decide_between_pass_warn_and_stop(tmp_path: Path) -> None:
    frame = world().with_columns(some("userId", None))
    verdicts = {
        stop: judged(frame, tmp_path, bad_rows={"warn": warn, "stop": stop}).report.verdict
        for warn, stop in ((0.03, 0.04), (0.01, 0.03), (0.01, 0.019))
    }
    assert verdicts == {0.04: "pass", 0.03: "warn", 0.019: "stop"}
    strict = judged(frame, tmp_path, nulls={"userId": 0})
    assert crossed(strict.report, "stop") == {"nulls userId"}
    assert "column 'userId' has 80 nulls, 2.00% of the rows; data.validate allows 0%" in str(refusal(strict.report))


def test_a_column_that_the_wishes_name_must_be_there_and_ranges_are_of_numbers(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match=r"data\.validate: column 'stars' is not in ratings\.parquet"):
        judged(world(), tmp_path, nulls={"stars": 0})
    with pytest.raises(Invalid, match=r"data\.validate\.range: column 'device' of ratings\.parquet is String"):
        judged(world(), tmp_path, range={"device": [0, 1]})


def accepted(tmp_path: Path, **validation: Any) -> Profile:
    outcome = judged(world(), tmp_path, **validation)
    assert outcome.profile is not None
    return Profile.model_validate_json(outcome.profile.model_dump_json())


def test_another_batch_of_the_same_world_passes_beside_the_accepted_one(tmp_path: Path) -> None:
    found = judged(world(seed=2), tmp_path, accepted(tmp_path))
    assert crossed(found.report) <= {"newest at"}, found.report.checks
    assert found.report.compared


def test_a_batch_that_moved_is_found_and_stops_where_the_spec_says_so(tmp_path: Path) -> None:
    moved = world(device=pl.when(pl.int_range(pl.len()) % 2 == 0).then(pl.lit("watch")).otherwise("device"), rating=6 - pl.col("rating"))
    found = judged(moved, tmp_path, accepted(tmp_path))
    assert {"drift device"} <= crossed(found.report) and refusal(found.report) is None
    stopped = judged(moved, tmp_path, accepted(tmp_path), drift={"warn": 0.1, "stop": 0.3})
    assert "drift device" in crossed(stopped.report, "stop")
    assert "values of 'device' have changed" in str(refusal(stopped.report))


TIES = {
    "userId": {"tie rating by userId", "tie at by userId"},
    "movieId": {"tie rating by movieId"},
    "rating": {"tie rating by userId", "tie rating by movieId"},
    "at": {"tie at by userId"},
}


def test_a_shuffled_column_is_found_though_it_holds_the_same_values(subtests: pytest.Subtests, tmp_path: Path) -> None:
    for column, ties in TIES.items():
        with subtests.test(column=column):
            found = judged(world().with_columns(pl.col(column).shuffle(seed=3)), tmp_path, accepted(tmp_path))
            assert crossed(found.report) == ties
            assert "was one column shuffled?" in check(found.report, sorted(ties)[0]).says
            assert (
                judged(
                    world().with_columns(pl.col(column).shuffle(seed=3)), tmp_path, accepted(tmp_path), ties={"stop": 0.8}
                ).report.verdict
                == "stop"
            )


def test_exchanged_keys_are_found(tmp_path: Path) -> None:
    exchanged = world().rename({"userId": "movieId", "movieId": "userId"}).select(world().columns)
    found = judged(exchanged, tmp_path, accepted(tmp_path))
    assert {"activity userId", "activity movieId"} <= crossed(found.report)


def test_users_nobody_has_seen_are_found(tmp_path: Path) -> None:
    found = judged(world(userId=pl.col("userId") + 1000), tmp_path, accepted(tmp_path))
    assert check(found.report, "unseen userId").verdict == "warn"
    assert check(found.report, "unseen userId").figure == 1.0
    assert check(found.report, "unseen movieId").figure == 0.0


def test_a_profile_stays_small_and_its_sample_tells_the_unseen_share_of_many_users(tmp_path: Path) -> None:
    count = 60_000
    frame = pl.DataFrame({"userId": range(count), "movieId": 1, "rating": 5.0, "at": 1.6e9, "word": [f"w{n}" for n in range(count)]})
    profile = judged(frame, tmp_path).profile
    assert profile is not None and len(profile.model_dump_json()) < 60_000
    later = frame.with_columns(pl.col("userId") + count // 4)
    found = judged(later, tmp_path, profile)
    assert abs(check(found.report, "unseen userId").figure - 0.25) < 0.05


def test_an_older_copy_of_the_data_is_noticed(tmp_path: Path) -> None:
    found = judged(world().filter(pl.col("at") < 1.6e9 + 40 * 86_400), tmp_path, accepted(tmp_path))
    assert "is this an older copy?" in check(found.report, "newest at").says


def test_the_page_stands_alone_and_what_the_data_says_is_escaped(tmp_path: Path) -> None:
    bad = "<script>alert(1)</script>"
    frame = world(device=pl.lit(bad)).rename({"device": "<b>dev</b>"})
    text = page(judged(frame, tmp_path).report)
    assert bad not in text and "<b>" not in text and "&lt;script&gt;" in text
    assert "http" not in text and "src=" not in text and "<link" not in text and "prefers-color-scheme: dark" in text
