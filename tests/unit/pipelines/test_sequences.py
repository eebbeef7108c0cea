"""What came before each row, against loops: lags and sequences by user, in windows, by session, in whatever order the rows lie."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter

from pipelines.features.engines import history as history_module
from pipelines.features.engines.history import ROW, History
from pipelines.features.engines.polars import Data
from pipelines.features.graph import Graph, Tables, compile_graph
from shared.contracts.features import Operator

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


def _made(rows: list[dict[str, Any]], said: dict[str, Any], folder: Path) -> tuple[Graph, pl.DataFrame]:
    frame = pl.DataFrame(rows, schema=SCHEMA).with_row_index(ROW).lazy()
    schema = pl.Schema({name: dtype for name, dtype in SCHEMA.items() if name != "label"})
    graph = compile_graph(ENTRIES.validate_python([{"categorify": ["user", "item"]}, said]), Tables("user", "item", "at", schema))
    prepared = frame.with_columns(graph.prepared("interactions"))
    history = History(prepared, graph.ordered, graph.row, folder, len(rows))
    fitted = graph.fit(Data(prepared, None, None, graph.row, history))
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
@pytest.mark.parametrize("of", ["at", "spent"])
@pytest.mark.parametrize("steps", [1, 3])
def test_a_lag_is_the_difference_to_so_many_interactions_before(of: str, steps: int, tmp_path: Path) -> None:
    @settings(max_examples=25, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
    @given(rows=ROWS)
    def agrees(rows: list[dict[str, Any]]) -> None:
        _, made = _made(rows, {"lag": {"of": of, "by": "user", "steps": steps}}, tmp_path / str(len(list(tmp_path.iterdir()))))
        for row, found in zip(rows, made.columns and made[f"{of}_lag" + (f"_{steps}" if steps > 1 else "")], strict=True):
            before = _earlier(rows, row)[-steps:]
            known = len(before) == steps and before[0][of] is not None and row[of] is not None
            assert found == (row[of] - before[0][of] if known else 0.0)

    agrees()


@pytest.mark.requirement("G-14")
@pytest.mark.parametrize("liked", [False, True])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("bounds", [{}, {"window": "9s"}, {"gap": "4s"}, {"window": "15s", "gap": "6s"}], ids=str)
def test_a_sequence_is_what_the_user_did_before(bounds: dict[str, str], reverse: bool, liked: bool, tmp_path: Path) -> None:
    length, seconds = 4, {name: int(said[:-1]) for name, said in bounds.items()}

    @settings(max_examples=20, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
    @given(rows=ROWS)
    def agrees(rows: list[dict[str, Any]]) -> None:
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

    agrees()
