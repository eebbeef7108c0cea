"""What is said of a spec's features before training is what etl and training then find."""

from __future__ import annotations

import ast
import typing
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import polars as pl
import pytest

from pipelines.data.sources import ReadableRoots
from pipelines.explain.document import explained
from pipelines.explain.fitting import ExplainedFit, fit_on_data, fit_on_nothing
from pipelines.features import compile, reading
from pipelines.features.graph import load_graph
from pipelines.features.raw import signature
from pipelines.features.reading import Reads
from pipelines.models.tables import plan_tables
from shared.contracts import features
from shared.contracts.spec import RecommenderSpec
from shared.contracts.yaml12 import load
from shared.domain.errors import Invalid
from tests.support.etl_stage import Etl
from tests.unit.pipelines.recommender import films, ratings, spec, write

FEATURES: list[dict[str, Any]] = [
    {"categorify": ["userId", "movieId", "year", "city"]},
    {"multi_hot": "genres", "separator": "|", "max_length": 2},
    {"log": "age"},
    {"bucketise": "age", "at": [18, 65]},
    {"bucketise": "year_", "quantiles": 3},
    {"calendar": {"of": "at", "parts": ["hour"]}},
    {"cross": ["genres", "hour"], "buckets": 50},
    {"one_hot": ["hour"]},
    {"target_encode": {"of": ["movieId"]}},
    {"target_encode": {"of": ["year", "genres1"]}},
    {"lag": {"of": "at", "by": "userId"}},
    {"sequence": {"of": "movieId", "by": "userId", "length": 5}},
    {"vector": {"of": "movieId", "from": "posters.parquet", "width": 4}},
]


def _all(folder: Path, **changes: Any) -> RecommenderSpec:
    write(folder, ratings(2_000), films().with_columns(year_=pl.col("year"), genres1=pl.col("genres").str.head(1)))
    users = pl.DataFrame({"userId": range(1, 25), "city": ["Ulm", "Lyon", None] * 8, "age": range(1, 25)})
    users.write_parquet(folder / "users.parquet")
    pl.DataFrame({"movieId": [1, 2], "vector": [[1.0, 0.0, 0.0, 0.0], [0.0, 1.0, 0.0, 0.0]]}).write_parquet(folder / "posters.parquet")
    made = spec(folder, features=FEATURES, **changes)
    data = {**made.document()["data"], "users": {"uri": str(folder / "users.parquet"), "key": "userId"}}
    return RecommenderSpec.model_validate(made.document() | {"data": data})


def _fitted(recommender: RecommenderSpec, folder: Path, most: int = 10**9, reads: Reads = "deep") -> ExplainedFit:
    scratch = folder / "explain"
    scratch.mkdir(exist_ok=True)
    return fit_on_data(recommender, ReadableRoots((str(folder),), scratch), most, reads)


def _nothing(recommender: RecommenderSpec, folder: Path, reads: Reads = "deep") -> ExplainedFit:
    scratch = folder / "nothing"
    scratch.mkdir(exist_ok=True)
    return fit_on_nothing(recommender, ReadableRoots((str(folder),), scratch), reads)


def explain(recommender: RecommenderSpec, fitted: ExplainedFit) -> dict[str, Any]:
    return explained(recommender, fitted).model_dump(mode="json", by_alias=True)


def test_it_says_the_features_that_etl_then_makes(etl: Etl, tmp_path: Path) -> None:
    recommender = _all(tmp_path)
    outcome = etl(recommender)
    graph, fitted = load_graph(lambda name: outcome.files[name]), _fitted(recommender, tmp_path)
    assert fitted.graph.describe() == graph.describe()
    assert fitted.rows == outcome.metrics["rows.train"]
    explanation = explain(recommender, fitted)
    assert {entry["name"]: entry["cardinality"] for entry in explanation["features"] if entry["kind"] == "code"} == outcome.facts[
        "cardinalities"
    ]
    assert [(entry["name"], entry["from"]) for entry in explanation["inputs"]] == [
        (entry.name, entry.origin) for entry in signature(graph).inputs
    ]


@pytest.mark.requirement("G-21")
def test_tables_are_those_that_training_plans_and_a_row_reads_what_its_values_read(etl: Etl, tmp_path: Path) -> None:
    recommender = _all(tmp_path)
    outcome = etl(recommender)
    graph = load_graph(lambda name: outcome.files[name])
    explanation = explain(recommender, _fitted(recommender, tmp_path))
    planned = {one.column: one for one in plan_tables(graph, None)}
    assert {entry["feature"]: (entry["codes"], entry["width"], entry["bytes"]) for entry in explanation["tables"]} == {
        name: (one.cardinality, one.width, one.size) for name, one in planned.items()
    }
    # Counted by hand: of every training row the genres of its item.
    rows = pl.read_parquet(outcome.files["train.parquet"])
    genres = pl.read_parquet(outcome.files["items.features.parquet"])["genres"].to_numpy()[rows["item_row"].to_numpy()]
    read = (genres != 0).sum() * (planned["genres"].width * 4 + 8) / len(rows)
    table = next(entry for entry in explanation["tables"] if entry["feature"] == "genres")
    assert table["bytes_per_row"] == pytest.approx(read, rel=1e-12)
    assert explanation["totals"]["bytes"] == sum(entry.size for entry in planned.values())
    assert explanation["totals"]["batch_size"] == 1024 and "rows per epoch, for 256 steps" in explanation["totals"]["batch_size_why"]
    assert explanation["totals"]["bytes_per_batch"] == pytest.approx(1024 * sum(entry["bytes_per_row"] for entry in explanation["tables"]))
    widths = {entry["feature"]: entry["padded_width"] for entry in explanation["tables"]}
    assert all(width % 4 == 0 and 0 <= width - planned[name].width < 4 for name, width in widths.items())


def test_of_two_towers_the_tables_are_those_of_users_and_items_and_likes_alone_are_counted(tmp_path: Path) -> None:
    recommender = _all(tmp_path, model={"family": "two_tower", "params": {"embedding": 8}})
    fitted = _fitted(recommender, tmp_path)
    explanation, graph = explain(recommender, fitted), fitted.graph
    assert {entry["feature"]: entry["width"] for entry in explanation["tables"]} == {
        one.name: 8 for one in graph.side("user", "item") if one.kind == "code"
    }
    assert explanation["totals"]["batch_size_why"] == f"by rule of its {fitted.positives:,} rows per epoch, for 256 steps"


def test_of_sequences_the_tables_are_those_of_the_keys_and_a_step_counts_sequences(tmp_path: Path) -> None:
    recommender = _all(tmp_path, model={"family": "session", "params": {"width": 16}})
    reading = explain(recommender, _fitted(recommender, tmp_path, reads="sequence"))
    assert [(one["feature"], one["width"]) for one in reading["tables"]] == [("movieId", 17)]
    assert reading["totals"]["batch_size_why"].startswith("by rule, in sequences of up to 6 places"), "as long as the feature"
    assert [one["name"] for one in reading["features"]] == ["userId", "movieId", "movieId_sequence"]
    assert {one["name"]: one["from"] for one in reading["inputs"]}["movieId_session"] == "request"
    recommender = _all(tmp_path, model={"family": "session", "params": {"width": 16, "length": 9}})
    explanation = explain(recommender, _fitted(recommender, tmp_path, reads="keys"))
    assert [entry["width"] for entry in explanation["tables"]] == [17, 17]
    assert explanation["totals"]["batch_size"] == 128
    assert explanation["totals"]["batch_size_why"].startswith("by rule, in sequences of up to 10 places")
    assert "for few sequences" in explain(recommender, _nothing(recommender, tmp_path, reads="keys"))["totals"]["batch_size_why"]


def test_without_data_it_says_what_the_spec_and_the_schemas_say_and_no_more(tmp_path: Path) -> None:
    recommender = _all(tmp_path)
    blind, seeing = (
        explain(recommender, _nothing(recommender, tmp_path)),
        explain(recommender, _fitted(recommender, tmp_path)),
    )
    same = ("name", "side", "kind", "several", "operator", "made", "columns")
    assert [[one[name] for name in same] for one in blind["features"]] == [[one[name] for name in same] for one in seeing["features"]]
    assert [(one["name"], one["dtype"], one["several"], one["from"]) for one in blind["inputs"]] == [
        (one["name"], one["dtype"], one["several"], one["from"]) for one in seeing["inputs"]
    ]
    pairs = [(one, other) for one, other in zip(blind["features"], seeing["features"], strict=True)]
    for one, other in pairs:  # what it does say is so
        assert one["cardinality"] in (None, other["cardinality"]) and one["width"] in (None, other["width"]), one["name"]
        assert one["embedding"] in (None, other["embedding"])
        assert not other["several"] or one["width"] is not None or one["width_at_most"] >= other["width"], one["name"]
    known = {one["name"] for one in blind["features"] if one["cardinality"] is not None}
    assert known == {"age_bucket", "hour", "genres_x_hour"}
    assert {one["name"]: one["width"] for one in blind["features"] if one["width"]} == {
        "hour_hot": 26,
        "movieId_sequence": 5,
        "movieId_vector": 4,
    }
    assert blind["data"] is None and blind["totals"]["bytes"] is None


def test_tables_that_are_too_large_for_the_graph_are_asked_for_by_key(tmp_path: Path) -> None:
    recommender = _all(tmp_path, serve={"vocabulary_limit": 25})
    inputs = {entry["name"]: entry for entry in explain(recommender, _fitted(recommender, tmp_path))["inputs"]}
    assert inputs["userId@stored"]["from"] == "store" and inputs["userId@stored"]["features"] == ["userId"]


def test_every_operator_has_a_lowering_to_each_runtime_that_it_names(tmp_path: Path) -> None:
    """NVTabular's can't be imported without NVTabular."""
    recommender = _all(tmp_path)
    text = (Path(__file__).parents[4] / "pipelines/features/engines/nvtabular/lowering.py").read_text()
    table = next(one for one in ast.parse(text).body if isinstance(one, ast.AnnAssign) and ast.unparse(one.target) == "_LOWERINGS")
    assert isinstance(table.value, ast.Dict)
    there = {ast.unparse(key) for key in table.value.keys if key}
    makers = (vars(compile) | vars(reading)).values()
    operators = {one.__name__ for one in makers if isinstance(one, type) and hasattr(one, "lower")} - {"Operator", "OneNumber"}
    assert len(operators) == 17 and operators == there
    assert explain(recommender, _nothing(recommender, tmp_path))["operators"][0]["runtimes"] == ["polars", "nvtabular", "onnx"]


def test_of_large_data_whole_users_are_looked_at_and_it_says_so(tmp_path: Path) -> None:
    recommender = _all(tmp_path)
    explanation = explain(recommender, _fitted(recommender, tmp_path, most=700))
    assert explanation["data"]["one_user_in"] == 3
    assert 0 < explanation["data"]["rows"] < 1_200
    sampled = next(entry for entry in explanation["features"] if entry["name"] == "userId")["cardinality"]
    assert 2 < sampled < 29


def test_a_family_has_the_tables_that_it_looks_up(tmp_path: Path) -> None:
    gates = [{"parity": 1e-4}]
    recommender = _all(tmp_path, model={"family": "mf", "params": {"width": 8}}, gates=gates)
    explanation = explain(recommender, _nothing(recommender, tmp_path))
    assert [(entry["feature"], entry["codes"], entry["width"], entry["bytes_per_row"]) for entry in explanation["tables"]] == [
        ("userId", None, 8, 40.0),
        ("movieId", None, 8, 40.0),
    ]
    for family, width in (("ease", 22), ("itemknn", 44), ("transitions", 44)):
        recommender = _all(tmp_path, model={"family": family}, gates=gates)
        (table,) = explain(recommender, _fitted(recommender, tmp_path))["tables"]
        assert (table["feature"], table["codes"], table["width"], table["bytes"]) == ("movieId", 22, width, 88 * width)
        assert explain(recommender, _nothing(recommender, tmp_path))["tables"][0]["bytes"] is None
    recommender = _all(tmp_path, model={"family": "blend"}, gates=gates)
    assert [table["feature"] for table in explain(recommender, _fitted(recommender, tmp_path))["tables"]] == [
        "movieId",
        "userId",
        "movieId",
    ]
    for family, widths in (("dlrm", {8}), ("wide_deep", {1, 9})):
        recommender = _all(tmp_path, model={"family": family, "params": {"width": 8}}, gates=gates)
        assert {table["width"] for table in explain(recommender, _fitted(recommender, tmp_path))["tables"]} == widths
        assert {table["width"] for table in explain(recommender, _nothing(recommender, tmp_path))["tables"]} == widths
    recommender = _all(tmp_path, model={"family": "popularity"}, gates=gates)
    assert explain(recommender, _fitted(recommender, tmp_path))["tables"] == []


def test_every_node_is_made_of_nodes_that_come_before_it(tmp_path: Path) -> None:
    recommender = spec(tmp_path, features=[{"categorify": ["userId", "movieId"]}, {"log": "year"}, {"normalise": "year"}, {"fill": "year"}])
    write(tmp_path)
    explanation = explain(recommender, _nothing(recommender, tmp_path))
    seen: set[str] = set()
    for node in explanation["nodes"]:
        assert set(node["of"]) <= seen
        seen.add(node["id"])
    year = next(entry for entry in explanation["features"] if entry["name"] == "year")
    assert year["made"] == "fill(normalise(log(year)))"
    assert [node["by"] for node in explanation["nodes"] if node["name"] == "year" and node.get("feature")] == ["fill"]


def test_features_that_do_not_fit_are_refused_without_data_too(tmp_path: Path) -> None:
    write(tmp_path)
    recommender = spec(tmp_path, features=[{"categorify": ["userId", "movieId", "yaer"]}])
    for look in (_nothing, _fitted):
        with pytest.raises(Invalid, match="did you mean 'year'"):
            look(recommender, tmp_path)


def test_a_table_of_several_keys_that_nobody_has_is_served_as_unknown(tmp_path: Path) -> None:
    items = films().with_columns(year=pl.lit(None, pl.Int64))
    write(tmp_path, items=items)
    features = [{"categorify": ["userId", "movieId"]}, {"target_encode": {"of": ["year", "movieId"]}}]
    graph = _fitted(spec(tmp_path, features=features), tmp_path).graph
    session = onnxruntime.InferenceSession(graph.lower().SerializeToString(), providers=["CPUExecutionProvider"])
    asked = {"userId": np.array([1, 2]), "movieId": np.array([1, 2]), "year": np.array([-(2**63), 1990])}
    (served,) = session.run(["features/year_movieId_te"], asked)
    assert served[0] == served[1] == graph.operators[-1].table[1]["label"][0][-1]  # type: ignore[attr-defined]


def test_the_how_to_has_an_example_of_every_operator_and_each_is_read(tmp_path: Path) -> None:
    text = (Path(__file__).parents[4] / "docs/how-to/making-features.md").read_text()
    entries = load(text.split("```yaml part-of-a-spec.yaml\n")[1].split("```")[0], "the how-to")["features"]
    read = spec(tmp_path, features=entries).operators()
    assert {type(one) for one in read} == set(typing.get_args(features.Any_))


def test_it_warns_of_a_filter_on_an_attribute_that_the_items_table_lacks(tmp_path: Path) -> None:
    recommender = _all(tmp_path, serve={"filter": ["year > 1990", "yaer > 1990"]})
    for fitted in (_fitted(recommender, tmp_path), _nothing(recommender, tmp_path)):
        message = "serve.filter: unknown attribute 'yaer': did you mean 'year'?; only the catalogue can have it"
        assert explain(recommender, fitted)["warnings"] == [message]
