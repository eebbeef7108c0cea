"""Begins a model card with export's facts; registration adds results, origin and size."""

from __future__ import annotations

from collections.abc import Sequence

from pipelines.features.graph import Graph
from pipelines.models.tables import Table, report
from shared.contracts.card import Exported
from shared.contracts.stage import StageSpec


def begin_card(stage: StageSpec, graph: Graph, tables: Sequence[Table], score: str) -> Exported:
    spec = stage.recommender
    return Exported(
        version=1,
        recommender=spec.name,
        run=stage.run,
        mode=stage.mode,
        model=spec.model.model_dump(mode="json"),
        features=tuple(graph.describe()),
        tables=tuple(report(tables)),
        lookup_bytes=sum(table.width * 4 * (table.length or 1) for table in tables),
        label=f"{spec.schema_.label.column or 'each row'} {spec.schema_.label.positive}",
        score=score,
    )
