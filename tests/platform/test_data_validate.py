"""`eyas data validate`: the checks of a run from the command line, in a process of the pipelines, on a spec's data or on a file."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest
from typer.testing import CliRunner, Result

from services.cli.main import app
from shared.contracts.validation_report import PAGE, PROFILE, QUARANTINE, REPORT
from tests.unit.pipelines.recommender import ratings, spec, write


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    write(tmp_path, ratings(2000))
    return tmp_path


def eyas(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["data", "validate", *arguments])


def nulls(share: int) -> pl.DataFrame:
    return ratings(2000).with_columns(userId=pl.when(pl.int_range(pl.len()) % share == 0).then(None).otherwise("userId"))


@pytest.mark.requirement("G-05")
def test_a_file_is_judged_by_what_its_columns_are_called(here: Path) -> None:
    found = eyas("ratings.parquet")
    assert found.exit_code == 0, found.stderr
    assert "ratings.parquet: 2,000 rows read, 2,000 kept, 0 quarantined" in found.stdout
    assert "pass     bad rows" in found.stdout and "pass: a run would use the data" in found.stdout


def test_what_a_run_would_publish_lies_in_the_folder_and_a_stop_is_one(here: Path) -> None:
    nulls(5).write_parquet("bad.parquet")
    assert eyas("ratings.parquet", "--to", "good").exit_code == 0
    assert not (here / "good" / QUARANTINE).exists()
    found = eyas("bad.parquet", "--against", f"good/{PROFILE}", "--to", "bad")
    assert found.exit_code == 1
    assert "stop: bad.parquet: column 'userId' has 400 nulls or NaN" in found.stdout
    assert len(pl.read_parquet(here / "bad" / QUARANTINE)) == 400
    assert json.loads((here / "bad" / REPORT).read_text())["compared"] is True
    assert "userId: missing" in (here / "bad" / PAGE).read_text()


def test_a_spec_says_what_is_allowed(here: Path) -> None:
    nulls(50).write_parquet("ratings.parquet")
    document = spec(here).document()
    document["data"]["interactions"] = {"uri": "ratings.parquet"}
    for stop, code in (("3%", 0), ("1%", 1)):
        document["data"]["validate"] = {"bad_rows": {"stop": stop}}
        (here / "spec.json").write_text(json.dumps(document))
        found = eyas("spec.json", "--json")
        assert found.exit_code == code, found.output
        assert json.loads(found.stdout)["rows"] == {"read": 2000, "kept": 1960, "quarantined": 40}


def test_a_spec_is_judged_with_its_tables_and_compared_with_those_of_an_earlier_batch(here: Path) -> None:
    document = spec(here).document()
    document["data"]["items"] = {"uri": "films.csv", "key": "movieId", "validate": {"range": {"year": [1900, 2030]}}}
    document["data"]["users"] = {"uri": "people.csv", "key": "person"}
    (here / "spec.json").write_text(json.dumps(document))
    (here / "people.csv").write_text("person,country\n" + "".join(f"{n},de\n" for n in range(1, 30)))
    (here / "films.csv").write_text("movieId,genres,year\n" + "".join(f"{n},Drama,1990\n" for n in range(1, 41)))
    assert eyas("spec.json", "--to", "first").exit_code == 0
    (here / "films.csv").write_text("movieId,genres,year\n1,Drama,soon\n" + "".join(f"{n},Drama,1990\n" for n in range(2, 31)))
    found = eyas("spec.json", "--against", f"first/{PROFILE}", "--to", "second")
    assert found.exit_code == 0, found.output
    assert "items: films.csv: 30 rows read, 29 kept, 1 quarantined" in found.stdout
    assert "users: people.csv: 29 rows read, 29 kept, 0 quarantined" in found.stdout
    assert "27.5% of the last accepted table's 40 keys are missing" in found.stdout
    assert "unknown items" in found.stdout and "warn: a run would use the data" in found.stdout
    assert pl.read_parquet(here / "second/quarantine/items.parquet").row(0) == (0, "year: not a number", "1", "Drama", "soon")
    assert set(pl.read_parquet(here / "second" / QUARANTINE)["movieId"]) == {1}
    (here / "people.csv").write_text("person,country\n1,de\n1,fr\nann,it\n")
    found = eyas("spec.json")
    assert found.exit_code == 1
    assert "stop: people.csv: column 'person' has 1 values that are not an integer, such as 'ann'" in found.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["missing.parquet"], "missing.parquet: file not found"),
        (["films.parquet"], "films.parquet: user column not recognised; set --column user=NAME; columns: movieId, genres, year"),
        (["ratings.parquet", "--column", "user=nobody"], "ratings.parquet: column 'nobody' is missing"),
        (["ratings.parquet", "--column", "user"], "--column: expected WHAT=NAME such as user=userId, got 'user'"),
        (["ratings.parquet", "--column", "clock=at"], "expected 'user', 'item', 'time' or 'label'"),
        (["ratings.parquet", "--positive", "many"], "expected a comparison such as '>= 4', a list of values"),
        (["ratings.parquet", "--against", "ratings.parquet"], "ratings.parquet: not a profile of an accepted batch"),
        (["spec.yaml"], "spec.yaml: cannot be read: No such file or directory"),
    ],
)
def test_a_wrong_question_is_two_and_one_line(arguments: list[str], said: str, here: Path) -> None:
    found = eyas(*arguments)
    assert found.exit_code == 2 and found.stdout == ""
    assert said in found.stderr and found.stderr.count("\n") == 1, found.stderr
