"""The platform's own feedback: joined with the file, or alone in a warm run that grows what its parent knew."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest

from shared.artifacts.store import FsspecArtifacts
from shared.contracts.feedback import Feedback
from shared.contracts.stage import Files
from shared.domain.errors import BadData, Invalid
from shared.stage_process import Outcome
from tests.support.etl_stage import Etl
from tests.unit.pipelines.recommender import spec, write

START = 1.6e9 + 200 * 3600


def _events(folder: Path, rows: list[str]) -> dict[str, Files]:
    path = folder / "events.csv"
    path.write_text("\n".join(["user,item,value,time", *rows]) + "\n")
    return {"events": {"events.csv": FsspecArtifacts(str(folder / "artifacts")).put(path)}}


def _many(count: int) -> list[str]:
    return [f"{100 + n % 7},{1 + n % 20},{'' if n % 3 else 1},{START + n}" for n in range(count)]


def _stored(folder: Path, outcome: Outcome) -> Files:
    store = FsspecArtifacts(str(folder / "artifacts"))
    return {name: store.put(path) for name, path in outcome.files.items()}


def _joined(folder: Path) -> Any:
    data = {
        "interactions": {"uri": str(folder / "ratings.parquet"), "also": "events"},
        "items": {"uri": str(folder / "films.parquet"), "key": "movieId"},
    }
    return spec(folder, data=data)


def test_events_join_the_file_and_one_without_a_value_is_a_positive(tmp_path: Path, etl: Etl) -> None:
    write(tmp_path)
    inputs = _events(tmp_path, [f"500,1,,{START}", f"500,2,2,{START}", f"500,3,4.5,{START}"])
    outcome = etl(_joined(tmp_path), inputs=inputs)
    held = pl.read_parquet(outcome.files["holdout.parquet"]).filter(pl.col("user") == 500)
    assert dict(held.select("item", "label").iter_rows()) == {1: 1, 2: 0, 3: 1}
    assert outcome.facts["rows"]["events"] == 3


@pytest.mark.requirement("G-05")
def test_a_kind_says_what_an_event_means(tmp_path: Path, etl: Etl) -> None:
    write(tmp_path)
    kinds = {"share": {"weight": 3}, "survey": {"positive": "by_label"}, "hover": {"positive": "never"}}
    rows = ["1,,click", "2,1,click", "3,,purchase", "4,2,rating", "5,5,rating", "6,,view", "7,5,view", "8,1,share", "9,4,survey"]
    rows += ["10,1,survey", "11,,hover", "12,,forgotten", "13,1,", "14,4,", "15,,"]
    lines = [f"500,{item},{value},{START},{kind}" for item, value, kind in (row.split(",") for row in rows)]
    path = tmp_path / "events.csv"
    path.write_text("\n".join(["user,item,value,time,kind", *lines]) + "\n")
    inputs = {"events": {"events.csv": FsspecArtifacts(str(tmp_path / "artifacts")).put(path)}}
    known = _joined(tmp_path).model_copy(update={"feedback": Feedback(kinds=kinds)})
    held = pl.read_parquet(etl(known, inputs=inputs).files["holdout.parquet"]).filter(pl.col("user") == 500)
    labels = dict(held.select("item", "label").iter_rows())
    assert labels == {1: 1, 2: 1, 3: 1, 4: 0, 5: 1, 8: 1, 9: 1, 10: 0, 13: 0, 14: 1, 15: 1}


def test_events_that_were_not_asked_for_stay_out(tmp_path: Path, etl: Etl) -> None:
    write(tmp_path)
    outcome = etl(spec(tmp_path), inputs=_events(tmp_path, [f"500,1,,{START}"]))
    assert outcome.metrics["rows.train"] + outcome.metrics["rows.holdout"] == 200


def test_no_events_yet_is_no_fault_of_a_full_run(tmp_path: Path, etl: Etl) -> None:
    write(tmp_path)
    assert etl(_joined(tmp_path), inputs=_events(tmp_path, [])).facts["rows"]["events"] == 0


def test_since_keeps_the_last_stretch(tmp_path: Path, etl: Etl) -> None:
    write(tmp_path)
    interactions = {"uri": str(tmp_path / "ratings.parquet"), "since": "99h"}
    data = {"interactions": interactions, "items": {"uri": str(tmp_path / "films.parquet"), "key": "movieId"}}
    outcome = etl(spec(tmp_path, data=data))
    assert outcome.metrics["rows.train"] + outcome.metrics["rows.holdout"] == 100


def test_a_warm_run_uses_events_alone_and_grows_the_parents_vocabulary(tmp_path: Path, etl: Etl) -> None:
    write(tmp_path)
    parent = etl(spec(tmp_path))
    inputs = _events(tmp_path, _many(600)) | {"parent": _stored(tmp_path, parent)}
    warm = etl(spec(tmp_path), mode="warm", inputs=inputs)
    assert warm.metrics["rows.train"] == 480
    old, new = (pl.read_parquet(one.files["vocabulary.userId.parquet"])["value"].to_list() for one in (parent, warm))
    assert new[: len(old)] == old and sorted(new[len(old) :]) == list(range(100, 107))
    before, after = (pl.read_parquet(one.files["history.parquet"]) for one in (parent, warm))
    assert len(after) > len(before) and set(after["user"]) == set(before["user"]) | set(range(100, 107))


def test_a_warm_run_on_few_events_says_how_many_and_what_to_do(tmp_path: Path, etl: Etl) -> None:
    write(tmp_path)
    inputs = _events(tmp_path, _many(499)) | {"parent": _stored(tmp_path, etl(spec(tmp_path)))}
    with pytest.raises(BadData, match="499 events since the parent; a warm run needs 500; wait, or start a full run"):
        etl(spec(tmp_path), mode="warm", inputs=inputs)


def test_a_warm_run_without_a_parent_is_refused(tmp_path: Path, etl: Etl) -> None:
    write(tmp_path)
    with pytest.raises(Invalid, match="a warm run needs a parent"):
        etl(spec(tmp_path), mode="warm", inputs=_events(tmp_path, _many(600)))


def test_equal_data_gives_an_equal_snapshot_and_equal_files(tmp_path: Path, etl: Etl) -> None:
    write(tmp_path)
    first, again = etl(spec(tmp_path)), etl(spec(tmp_path))
    assert first.facts["snapshot"] == again.facts["snapshot"]
    assert {n: p.read_bytes() for n, p in first.files.items()} == {n: p.read_bytes() for n, p in again.files.items()}


def test_a_warm_run_splits_as_its_parent_did(subtests: pytest.Subtests, tmp_path: Path, etl: Etl) -> None:
    for by in ["leave_last_out", "random"]:
        with subtests.test(by=by):
            write(tmp_path)
            interactions = {"uri": str(tmp_path / "ratings.parquet"), "duplicates": "last", "min_interactions": 5}
            items = {"uri": str(tmp_path / "films.parquet"), "key": "movieId"}
            known = spec(tmp_path, split={"by": by, "test": "50%"}, data={"interactions": interactions, "items": items})
            parent = etl(known)
            found = etl(known, mode="warm", inputs={"parent": _stored(tmp_path, parent)} | _events(tmp_path, _many(700)))
            for outcome, read in ((parent, 200), (found, 700)):
                train, holdout = (pl.read_parquet(outcome.files[f"{side}.parquet"]) for side in ("train", "holdout"))
                rows = outcome.facts["rows"]
                assert len(train) + len(holdout) + rows["duplicates"] + rows.get("too_few", 0) == read
                assert "cut" not in outcome.facts["split"]
            history = pl.read_parquet(found.files["history.parquet"])
            assert {*pl.read_parquet(parent.files["history.parquet"])["user"]} < {*history["user"]}
