"""`eyas features explain`: features, tables, inputs and drawings of a spec, and errors in one line."""

from __future__ import annotations

import json
import re
import sqlite3
from pathlib import Path

import polars as pl
import pytest

from services.cli.drawing import dot, mermaid
from shared.contracts.explanation import Node
from tests.unit.pipelines.recommender import spec, write

pytestmark = pytest.mark.usefixtures("tool_in_process")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    write(tmp_path)
    path = tmp_path / "films.json"
    path.write_text(json.dumps(spec(tmp_path).document()))
    return path


def test_it_shows_features_tables_and_inputs(eyas, file):
    shown = eyas("features", "explain", file)
    assert shown.exit_code == 0, shown.output
    lines = [line.split() for line in shown.stdout.splitlines() if line]
    assert shown.stdout.startswith("films, family mlp: fitted on 160 rows to train on, 20 items, 29 users")
    assert ["genres", "item", "codes", "x", "3", "5", "multi_hot(genres)"] in lines
    assert ["genres", "string", "x", "3", "item", "catalogue", "genres"] in lines
    assert ["userId", "int64", "user", "request", "userId"] in lines
    assert "total " in shown.stdout and "polars" in shown.stdout


def test_as_json_it_says_the_same_for_machines(eyas, file):
    found = json.loads(eyas("features", "explain", file, "--json", "--no-data").stdout)
    assert found["data"] is None
    assert {one["name"] for one in found["features"]} == {"userId", "movieId", "year", "genres"}
    assert all({"polars", "onnx"} <= set(one["runtimes"]) for one in found["operators"])


@pytest.mark.parametrize("language", ["dot", "mermaid"])
def test_the_graph_is_drawn_with_every_edge_between_nodes_that_are_there(eyas, file, language):
    drawn = eyas("features", "explain", file, "--no-data", "--draw", language).stdout
    nodes = set(re.findall(r"^  (n\d+)[ \[(]+", drawn, re.MULTILINE))
    edges = re.findall(r"(n\d+) -+> (n\d+)", drawn)
    assert len(nodes) == 8 and len(edges) == 4
    assert {end for edge in edges for end in edge} == nodes


def test_names_cannot_break_out_of_a_drawing():
    node = Node(id="a", name='a"]; b\\', side="item", table="items")
    assert dot([node]).count('"') % 2 == 0 and "a'];" in dot([node])
    assert '["a\']; b\\\\ (items)"]' in mermaid([node])


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"features": [{"categorify": ["userId", "movieId", "yaer"]}]}, "did you mean 'year'"),
        ({"features": [{"categorify": ["userId", "movieId"]}, {"multi_hot": "genres"}]}, "set its separator"),
        ({"data": {"interactions": {"uri": "none.csv"}, "items": {"uri": "none.csv", "key": "movieId"}}}, "file not found"),
        ({"model": {"family": "mpl"}}, "did you mean 'mlp'"),
    ],
)
def test_what_is_wrong_is_one_line_and_exit_code_two(eyas, file, change, said):
    file.write_text(json.dumps(json.loads(file.read_text()) | change))
    shown = eyas("features", "explain", file)
    assert shown.exit_code == 2
    assert said in shown.stderr and shown.stderr.count("\n") == 1


def test_a_spec_that_is_not_there_is_one_line(eyas, tmp_path):
    shown = eyas("features", "explain", tmp_path / "none.yaml")
    assert (shown.exit_code, shown.stderr.count("\n")) == (2, 1)


def test_relative_paths_are_looked_for_under_the_roots_that_are_said(eyas, file, tmp_path):
    document = json.loads(file.read_text())
    document["data"]["interactions"]["uri"], document["data"]["items"]["uri"] = "ratings.parquet", "films.parquet"
    file.write_text(json.dumps(document))
    (tmp_path / "specs").mkdir()
    file = file.rename(tmp_path / "specs" / "films.json")
    assert eyas("features", "explain", file, "--no-data").exit_code == 2
    assert eyas("features", "explain", file, "--no-data", "--data-root", tmp_path).exit_code == 0


def test_a_query_is_asked_of_the_database_that_the_environment_names(eyas, file, tmp_path, monkeypatch):
    with sqlite3.connect(tmp_path / "shop.db") as database:
        database.execute("create table ratings (userId integer, movieId integer, rating real, at real)")
        rows = pl.read_parquet(tmp_path / "ratings.parquet").select("userId", "movieId", "rating", "at").rows()
        database.executemany("insert into ratings values (?, ?, ?, ?)", rows)
    database.close()
    (tmp_path / "databases").write_text(f"shop: sqlite:///{tmp_path / 'shop.db'}\n")
    (tmp_path / "databases").chmod(0o600)
    document = json.loads(file.read_text())
    document["data"]["interactions"] = {"query": "SELECT * FROM ratings", "from": "shop"}
    file.write_text(json.dumps(document))
    assert eyas("features", "explain", file).exit_code == 2
    monkeypatch.setenv("EYAS_DATABASES", str(tmp_path / "databases"))
    shown = eyas("features", "explain", file)
    assert shown.exit_code == 0, shown.output
    assert "fitted on 160 rows" in shown.stdout


@pytest.mark.requirement("G-06")
def test_it_shows_what_another_family_reads_and_what_it_leaves_out_and_why(eyas, tmp_path, file):
    features = [{"categorify": ["userId", "movieId"]}, {"multi_hot": "genres", "separator": "|"}, {"normalise": "year"}]
    file.write_text(json.dumps(spec(tmp_path, features=features).document()))
    shown = eyas("features", "explain", file, "--family", "trees")
    assert shown.exit_code == 0, shown.output
    lines = [re.split(r"\s{2,}", line.strip()) for line in shown.stdout.splitlines() if line.strip()]
    assert lines[0][0].startswith("films, family trees: fitted on ")
    assert ["year", "item", "number", "-", "number(year)"] in lines
    assert ["LEFT OUT", "OF", "WHY"] in lines
    assert ["normalise", "year", "the operator keeps the order of the numbers, and trees split by order"] in lines

    counted = json.loads(eyas("features", "explain", file, "--no-data", "--family", "popularity", "--json").stdout)
    assert (counted["family"], counted["reads"], counted["tables"]) == ("popularity", "keys", [])
    assert [one["name"] for one in counted["inputs"]] == ["userId", "movieId"]
    assert [one["feature"] for one in counted["left_out"]] == ["genres", "year"]
    factorised = json.loads(eyas("features", "explain", file, "--no-data", "--family", "mf", "--json").stdout)
    assert [(one["feature"], one["width"]) for one in factorised["tables"]] == [("userId", 64), ("movieId", 64)]
    assert json.loads(eyas("features", "explain", file, "--no-data", "--json").stdout)["left_out"] == []

    refused = eyas("features", "explain", file, "--no-data", "--family", "treees")
    assert refused.exit_code == 2 and "did you mean 'trees'?" in refused.output
