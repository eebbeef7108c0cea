"""What came before each row, against loops: lags and sequences by user, in windows, by session, in whatever order the rows lie."""

from __future__ import annotations

import os
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter

from pipelines.features.engines import history as history_module
from pipelines.features.engines.history import ROW, RowHistory
from pipelines.features.engines.polars import PreparedTables
from pipelines.features.graph import Graph, Tables, compile_graph
from shared.contracts.features import Operator
from shared.domain.pages import page_key

EXAMPLES = int(os.environ.get("EYAS_CASES", "6"))
ENTRIES: TypeAdapter[tuple[Any, ...]] = TypeAdapter(tuple[Operator, ...])
SCHEMA = {"user": pl.Int64(), "item": pl.Int64(), "at": pl.Int64(), "label": pl.Int8(), "spent": pl.Float32()}
ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "user": st.integers(1, 4),
            "item": st.integers(0, 9),
            "at": st.integers(0, 40),
            "label": st.integers(0, 1),
            "spent": st.one_of(st.none(), st.integers(0, 50).map(float)),
        }
    ),
    min_size=1,
    max_size=40,
    unique_by=lambda row: (row["user"], row["at"], row["item"]),
)

BOUNDS: list[dict[str, str]] = [{}, {"window": "9s"}, {"gap": "4s"}, {"window": "15s", "gap": "6s"}]
LAGS: list[dict[str, Any]] = [{"lag": {"of": "at", "by": "user"}}, {"lag": {"of": "spent", "by": "user", "steps": 2}}]
NAMES = ["home", "cart", "ü"]
VIEWS = st.lists(
    st.fixed_dictionaries({"user": st.integers(1, 4), "item": st.sampled_from(NAMES).map(page_key), "at": st.integers(0, 40)}),
    max_size=30,
    unique_by=lambda row: (row["user"], row["at"], row["item"]),
)


def _made(
    rows: list[dict[str, Any]], said: dict[str, Any], folder: Path, views: list[dict[str, Any]] | None = None
) -> tuple[Graph, pl.DataFrame]:
    frame = pl.DataFrame(rows, schema=SCHEMA).with_row_index(ROW).lazy()
    schema = pl.Schema({name: dtype for name, dtype in SCHEMA.items() if name != "label"})
    graph = compile_graph(ENTRIES.validate_python([{"categorify": ["user", "item"]}, said]), Tables("user", "item", "at", schema))
    prepared = frame.with_columns(graph.prepared("interactions"))
    pages = None if views is None else pl.LazyFrame(views, schema={name: SCHEMA[name] for name in ("user", "item", "at")})
    history = RowHistory(prepared, graph.ordered, graph.row, folder, len(rows), pages)
    fitted = graph.fit(PreparedTables(prepared, None, None, graph.row, history, pages))
    return fitted, fitted.transform(prepared, mode="rows", history=history).collect()


def _earlier(rows: list[dict[str, Any]], row: dict[str, Any], liked: bool = False) -> list[dict[str, Any]]:
    """The same user's before it, the oldest first."""
    place = (row["at"], row["item"])
    found = [one for one in rows if one["user"] == row["user"] and (one["at"], one["item"]) < place and (one["label"] or not liked)]
    return sorted(found, key=lambda one: (one["at"], one["item"]))


@pytest.fixture(autouse=True)
def _several_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history_module, "SPREAD", 10)


@pytest.mark.requirement("G-14")
def test_a_lag_is_the_difference_to_so_many_interactions_before(subtests: pytest.Subtests, tmp_path: Path) -> None:
    @settings(max_examples=EXAMPLES, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
    @given(rows=ROWS)
    def agrees(rows: list[dict[str, Any]], of: str, steps: int) -> None:
        _, made = _made(rows, {"lag": {"of": of, "by": "user", "steps": steps}}, tmp_path / str(len(list(tmp_path.iterdir()))))
        for row, found in zip(rows, made.columns and made[f"{of}_lag" + (f"_{steps}" if steps > 1 else "")], strict=True):
            before = _earlier(rows, row)[-steps:]
            known = len(before) == steps and before[0][of] is not None and row[of] is not None
            assert found == (row[of] - before[0][of] if known else 0.0)

    for of, steps in product(("at", "spent"), (1, 3)):
        with subtests.test(of=of, steps=steps):
            agrees(of=of, steps=steps)


@pytest.mark.requirement("G-14")
def test_a_served_lag_counts_from_the_newest_row_of_the_holdout_too(tmp_path: Path) -> None:
    """Also when a count of users is fitted in the same passes: it reads the training rows alone."""
    rows = [{"user": user, "item": 1, "at": at, "label": 1, "spent": 0.0} for user, at in ((1, 5), (2, 7), (1, 20))]
    schema = pl.Schema({name: dtype for name, dtype in SCHEMA.items() if name != "label"})
    operators = [{"categorify": ["user", "item"]}, {"count_encode": "user"}, {"lag": {"of": "at", "by": "user"}}]
    graph = compile_graph(ENTRIES.validate_python(operators), Tables("user", "item", "at", schema))
    prepared = pl.DataFrame(rows, schema=SCHEMA).with_row_index(ROW).lazy().with_columns(graph.prepared("interactions"))
    history = RowHistory(prepared, graph.ordered, graph.row, tmp_path, len(rows))
    fitted = graph.fit(PreparedTables(prepared.filter(pl.col("at") < 10), None, None, graph.row, history))
    requests = pl.LazyFrame([{"user": user, "item": 1, "at": 30} for user in (1, 2)], schema_overrides=SCHEMA)
    assert fitted.transform(requests.with_columns(graph.prepared("interactions"))).collect()["at_lag"].to_list() == [10.0, 23.0]


@pytest.mark.requirement("G-14")
def test_a_sequence_is_what_the_user_did_before(subtests: pytest.Subtests, tmp_path: Path) -> None:
    length = 4

    @settings(max_examples=EXAMPLES, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
    @given(rows=ROWS)
    def agrees(rows: list[dict[str, Any]], bounds: dict[str, str], reverse: bool, liked: bool) -> None:
        seconds = {name: int(said[:-1]) for name, said in bounds.items()}
        said = {"sequence": {"of": "item", "by": "user", "length": length, "liked": liked, "reverse": reverse} | bounds}
        graph, made = _made(rows, said, tmp_path / str(len(list(tmp_path.iterdir()))))
        codes = {value: code for code, value in enumerate(graph.key("item").state.values, 2)}
        for row, found in zip(rows, made["item_sequence"], strict=True):
            kept: list[int] = []
            last = row["at"]
            for one in reversed(_earlier(rows, row, liked)[-length:]):
                if last - one["at"] > seconds.get("gap", 10**9) or row["at"] - one["at"] > seconds.get("window", 10**9):
                    break
                kept.append(codes[one["item"]])
                last = one["at"]
            wanted = kept if reverse else kept[::-1]
            np.testing.assert_array_equal(found, wanted + [0] * (length - len(wanted)))

    for bounds, reverse, liked in product(BOUNDS, (False, True), (False, True)):
        with subtests.test(bounds=bounds, reverse=reverse, liked=liked):
            agrees(bounds=bounds, reverse=reverse, liked=liked)


@pytest.mark.requirement("G-16")
def test_a_sequence_of_pages_is_what_the_user_did_and_saw_before(subtests: pytest.Subtests, tmp_path: Path) -> None:
    """A page of the same second comes before the item. As it is served, it is all that the user did and saw."""
    length = 4

    @settings(max_examples=EXAMPLES, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
    @given(rows=ROWS, views=VIEWS)
    def agrees(rows: list[dict[str, Any]], views: list[dict[str, Any]], bounds: dict[str, str], reverse: bool) -> None:
        seconds = {name: int(said[:-1]) for name, said in bounds.items()}
        said = {"sequence": {"of": "item", "by": "user", "length": length, "reverse": reverse, "pages": True} | bounds}
        graph, made = _made(rows, said, tmp_path / str(len(list(tmp_path.iterdir()))), views)
        codes = _codes([row["item"] for row in rows], [view["item"] for view in views])
        assert graph.key("item").state.values.to_list() == list(codes)
        seen = [*({"label": 0, **view} for view in views), *rows]
        asked = pl.LazyFrame([{"user": user, "item": 0, "at": 41} for user in range(1, 5)], schema_overrides=SCHEMA)
        served = graph.transform(asked.with_columns(graph.prepared("interactions"))).collect()["item_sequence"]
        later = [{"user": user, "item": 99, "at": 41} for user in range(1, 5)]
        for row, found in zip([*rows, *later], [*made["item_sequence"], *served], strict=True):
            kept: list[int] = []
            last = row["at"]
            for one in reversed(_earlier(seen, row)[-length:]):
                if last - one["at"] > seconds.get("gap", 10**9) or row["at"] - one["at"] > seconds.get("window", 10**9):
                    break
                kept.append(codes[one["item"]])
                last = one["at"]
            wanted = kept if reverse else kept[::-1]
            np.testing.assert_array_equal(found, wanted + [0] * (length - len(wanted)))

    for bounds, reverse in product(BOUNDS, (False, True)):
        with subtests.test(bounds=bounds, reverse=reverse):
            agrees(bounds=bounds, reverse=reverse)


@pytest.mark.requirement("G-16")
def test_what_isnt_of_pages_doesnt_see_them(subtests: pytest.Subtests, tmp_path: Path) -> None:
    @settings(max_examples=EXAMPLES, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
    @given(rows=ROWS, views=VIEWS)
    def agrees(rows: list[dict[str, Any]], views: list[dict[str, Any]], said: dict[str, Any]) -> None:
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        graphs, made = zip(*(_made(rows, said, folder / name, some) for name, some in (("with", views), ("without", None))), strict=True)
        assert made[0].equals(made[1])
        states = [{name: frame for one in graph.operators for name, frame in one.saved().frames.items()} for graph in graphs]
        assert all(frame.equals(states[1][name]) for name, frame in states[0].items())

    for said in LAGS:
        with subtests.test(said=said):
            agrees(said=said)


def _codes(items: list[int], pages: list[int]) -> dict[int, int]:
    """The most frequent first, equal ones by value; pages behind items."""
    ordered = [value for some in (items, pages) for value in sorted(set(some), key=lambda one: (-some.count(one), one))]
    return {value: code for code, value in enumerate(ordered, 2)}
