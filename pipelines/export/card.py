"""Begins a model card with export's facts; registration adds results, origin and size."""

from __future__ import annotations

from pipelines.features.graph import Graph
from pipelines.models.family import Trained
from pipelines.models.recent_items import UsesRecentItems
from pipelines.models.tables import report
from shared.contracts.card import Exported
from shared.contracts.items_table import NewItems
from shared.contracts.stage import StageSpec
from shared.serving.signature import Signature


def begin_card(stage: StageSpec, graph: Graph, model: Trained, served: Signature, new: NewItems) -> Exported:
    spec = stage.recommender
    return Exported(
        version=1,
        recommender=spec.name,
        run=stage.run,
        mode=stage.mode,
        model=spec.model.model_dump(mode="json"),
        features=tuple(graph.describe()),
        tables=tuple(report(model.tables)),
        lookup_bytes=sum(table.width * 4 * (table.length or 1) for table in model.tables),
        label=f"{spec.schema_.label.column or 'each row'} {spec.schema_.label.positive}",
        score=model.meaning,
        recent=_recent_use(model) if served.session is not None and spec.serve.recent_items else None,
        new_items=tuple(sorted({source.attribute for source in new.inputs})),
    )


def _recent_use(model: Trained) -> str | None:
    if isinstance(model, UsesRecentItems):
        return model.recent_use
    return "recent likes follow the sequence of the user's items, which the model reads"
