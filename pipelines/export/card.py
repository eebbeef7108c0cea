"""What export knows of a model, for people; registration adds what it proved, where it comes from and what it weighs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pipelines.features.graph import Graph
from pipelines.models.tables import Table, report
from shared.contracts.stage import StageSpec


def card(stage: StageSpec, graph: Graph, tables: Sequence[Table]) -> dict[str, Any]:
    spec = stage.recommender
    return {
        "version": 1,
        "recommender": spec.name,
        "run": stage.run,
        "mode": stage.mode,
        "model": spec.model.model_dump(mode="json"),
        "features": graph.describe(),
        "tables": report(tables),
        "label": f"{spec.schema_.label.column} {spec.schema_.label.positive}",
        "score": "how likely the user likes the item, between 0 and 1; sampled negatives shift it, so compare it, don't read it",
    }
