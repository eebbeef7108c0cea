"""New data adds to what was fitted: five daily slices, one after the other, against all of them at once."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from pipelines.features.engines.history import ROW, RowHistory
from pipelines.features.engines.polars import PreparedTables
from pipelines.features.graph import Graph, Tables, compile_graph
from pipelines.features.operators.categorify import Categorify, MultiHot
from pipelines.features.operators.lag import Lag
from pipelines.features.operators.numbers import Fill, Normalise
from pipelines.features.operators.sequence import Sequence
from pipelines.features.operators.target import CountEncode, TargetEncode
from tests.support.feature_runtimes import OPERATORS

DAY = 86_400
ENTRIES = OPERATORS.validate_python(
    [
        {"categorify": ["user", "item"]},
        {"categorify": "shop", "min_count": 3},
        {"multi_hot": "tags"},
        {"normalise": "price"},
        {"fill": "weight"},
        {"target_encode": {"of": "item"}},
        {"count_encode": ["user", "shop"]},
        {"lag": {"of": "time", "by": "user"}},
        {"lag": {"of": "price", "by": "user", "steps": 3}},
        {"sequence": {"of": "item", "by": "user", "length": 5}},
    ]
)


def _slices(days: int = 5, rows: int = 800) -> list[pl.DataFrame]:
    random = np.random.default_rng(4)
    found = []
    for day in range(days):
        tags = [[f"tag{one}" for one in random.integers(0, 4 + day, random.integers(0, 4))] for _ in range(rows)]
        price = np.where(random.random(rows) < 0.05, None, random.normal(3 + day, 2, rows).astype(np.float32)).tolist()
        frame = pl.DataFrame(
            {
                "user": random.integers(0, 40 + 20 * day, rows),
                "item": random.integers(0, 60 + 15 * day, rows),
                "time": day * DAY + random.integers(0, DAY, rows),
                "label": random.integers(0, 2, rows).astype(np.int8),
                "shop": [f"shop{one}" for one in np.minimum(random.zipf(1.3, rows), 300)],
                "tags": tags,
                "price": price,
                "weight": price,
            },
            schema_overrides={"price": pl.Float32, "weight": pl.Float32},
        )
        found.append(frame)
    return found


def _fit(rows: pl.DataFrame, folder: Path, known: Graph | None = None) -> Graph:
    schema = pl.Schema({name: dtype for name, dtype in rows.schema.items() if name != "label"})
    graph = compile_graph(ENTRIES, Tables("user", "item", "time", schema))
    frame = rows.lazy().with_columns(graph.prepared("interactions")).with_row_index(ROW)
    history = RowHistory(frame, graph.ordered, graph.row, folder, len(rows))
    return graph.fit(PreparedTables(frame, None, None, graph.row, history), known)


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> tuple[Graph, Graph, list[Graph]]:
    """Fitted day by day, and at once; and how it was after each day."""
    folder, slices, steps = tmp_path_factory.mktemp("history"), _slices(), []
    known: Graph | None = None
    for number, rows in enumerate(slices):
        known = _fit(rows, folder / str(number), known)
        steps.append(known)
    assert known is not None
    return known, _fit(pl.concat(slices), folder / "whole"), steps


@pytest.mark.requirement("G-07")
def test_vocabularies_hold_the_same_values_with_the_same_counts_and_no_code_ever_moved(both: tuple[Graph, Graph, list[Graph]]) -> None:
    grown, whole, steps = both
    for ours, theirs in zip(grown.operators, whole.operators, strict=True):
        if isinstance(ours, Categorify | MultiHot) and isinstance(theirs, Categorify | MultiHot):
            counts = [dict(zip(one.state.values, one.state.counts, strict=True)) for one in (ours, theirs)]
            waiting = [dict(one.state.waiting.iter_rows()) for one in (ours, theirs)]
            assert counts[0] == counts[1] and waiting[0] == waiting[1]
    for before, after in pairwise(steps):
        for one, two in zip(before.operators, after.operators, strict=True):
            if isinstance(one, Categorify | MultiHot) and isinstance(two, Categorify | MultiHot):
                assert two.state.values[: len(one.state.values)].to_list() == one.state.values.to_list()
    shops = next(one for one in grown.operators if isinstance(one, Categorify) and one.column.name == "shop")
    assert len(shops.state.waiting) > 0 and min(shops.state.counts) >= 3


@pytest.mark.requirement("G-07")
def test_sums_counts_and_what_was_newest_are_the_same_exactly(both: tuple[Graph, Graph, list[Graph]]) -> None:
    grown, whole, _ = both
    seen = 0
    for ours, theirs in zip(grown.operators, whole.operators, strict=True):
        if isinstance(ours, TargetEncode | CountEncode | Lag | Sequence):
            frames = [{name: frame for name, frame in one.saved().frames.items() if "vocabulary" not in name} for one in (ours, theirs)]
            assert frames[0].keys() == frames[1].keys() and frames[0]
            for name, frame in frames[0].items():
                assert frame.equals(frames[1][name]), name
                seen += 1
    assert seen == 6


@pytest.mark.requirement("G-07")
def test_moments_are_the_same_to_nine_digits(both: tuple[Graph, Graph, list[Graph]]) -> None:
    grown, whole, _ = both
    for ours, theirs in zip(grown.operators, whole.operators, strict=True):
        if isinstance(ours, Normalise | Fill) and isinstance(theirs, Normalise | Fill):
            assert ours.summary.count == theirs.summary.count
            assert (ours.summary.smallest, ours.summary.largest) == (theirs.summary.smallest, theirs.summary.largest)
            np.testing.assert_allclose([ours.summary.mean, ours.summary.squares], [theirs.summary.mean, theirs.summary.squares], rtol=1e-8)
