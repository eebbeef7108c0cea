"""Dashboards: rows of panels, variables for data source and recommender, and annotations."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from grafana_foundation_sdk.builders import dashboard
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import (
    AnnotationQuery,
    DashboardCursorSync,
    DashboardLinkType,
    VariableHide,
    VariableModel,
    VariableOption,
    VariableRefresh,
    VariableSort,
)

from dashboards.form import SOURCE, Panel

DOCS = "https://docs.invalid/eyas"
"""Default address of the documents."""
OF = 'recommender=~"$recommender"'
"""Label filter of the chosen recommenders."""


@dataclass(frozen=True)
class Row:
    title: str
    panels: Sequence[Panel]


@dataclass(frozen=True)
class Mark:
    """Annotation. Its time is the value of the metric (`timed`), or any time at which the expression is positive."""

    name: str
    expr: str
    title: str
    colour: str
    timed: bool = False


MOVES = Mark(
    "Route changes",
    f"max by (recommender, stable, candidate) (eyas_route_since_seconds{{{OF}}}) * 1000",
    "{{recommender}}: version {{stable}} is stable, candidate {{candidate}}",
    "blue",
    timed=True,
)
ENDS = Mark(
    "Ended rollouts",
    f"sum by (recommender, state) (increase(eyas_rollouts_total{{{OF}}}[2m])) > 0"
    f" or sum by (recommender, state) (eyas_rollouts_total{{{OF}}} unless eyas_rollouts_total{{{OF}}} offset 2m) > 0",
    "{{recommender}}: rollout {{state}}",
    "purple",
)
RETRAININGS = Mark(
    "Retrainings",
    f"sum by (recommender, trigger, mode) (increase(eyas_retrainings_total{{{OF}}}[2m])) > 0"
    f" or sum by (recommender, trigger, mode) (eyas_retrainings_total{{{OF}}} unless eyas_retrainings_total{{{OF}}} offset 2m) > 0",
    "{{recommender}}: retraining ({{mode}}) by {{trigger}}",
    "orange",
)


@dataclass(frozen=True)
class Board:
    """Dashboard. `about` is its description; `one` limits it to one recommender at a time."""

    name: str
    title: str
    about: str
    rows: Sequence[Row]
    marks: Sequence[Mark] = ()
    recommenders: bool = True
    one: bool = False


class _Marked(AnnotationQuery):
    """Annotation with Prometheus fields that the SDK lacks."""

    def __init__(self, mark: Mark) -> None:
        super().__init__(name=mark.name, datasource=SOURCE, enable=True, icon_color=mark.colour, expr=mark.expr)
        self._mark = mark

    def to_json(self) -> dict[str, object]:
        more = {"titleFormat": self._mark.title, "tagKeys": "recommender", "step": "60s", "useValueForTime": self._mark.timed}
        return {**super().to_json(), **more}


@dataclass(frozen=True)
class _Built(Builder[AnnotationQuery]):
    made: AnnotationQuery

    def build(self) -> AnnotationQuery:
        return self.made


def written(board: Board) -> str:
    """Returns the JSON file for Grafana, deterministic."""
    made = dashboard.Dashboard(f"Eyas: {board.title}").uid(f"eyas-{board.name}").description(board.about).tags(["eyas"])
    made.readonly().timezone("browser").refresh("30s").time("now-6h", "now").tooltip(DashboardCursorSync.CROSSHAIR)
    for variable in _variables(board):
        made.with_variable(variable)
    for mark in board.marks:
        made.annotation(_Built(_Marked(mark)))
    others = dashboard.DashboardLink("Eyas").type(DashboardLinkType.DASHBOARDS).tags(["eyas"])
    made.link(others.as_dropdown(True).include_vars(True).keep_time(True))
    for row in board.rows:
        made.with_row(dashboard.Row(row.title))
        for panel in row.panels:
            made.with_panel(panel)
    built = made.build()
    for number, shown in enumerate(built.panels or (), 1):  # links refer to panels by id
        shown.id_val = number
    return json.dumps(built, cls=JSONEncoder, indent=1) + "\n"


def _variables(board: Board) -> Sequence[Builder[VariableModel]]:
    source = dashboard.DatasourceVariable("datasource").label("Prometheus").type("prometheus")
    docs = dashboard.TextBoxVariable("docs").label("Documents").description("Address of the documents of this version.")
    docs.default_value(DOCS).current(VariableOption(text=DOCS, value=DOCS)).hide(VariableHide.DONT_HIDE)
    if not board.recommenders:
        return source, docs
    chosen = dashboard.QueryVariable("recommender").label("Recommender").datasource(SOURCE)
    chosen.query({"qryType": 1, "query": "label_values(eyas_serving_version, recommender)", "refId": "recommender"})
    chosen.refresh(VariableRefresh.ON_TIME_RANGE_CHANGED).sort(VariableSort.ALPHABETICAL_ASC)
    if not board.one:
        chosen.multi(True).include_all(True).all_value(".*").current(VariableOption(text=["All"], value=["$__all"]))
    return source, chosen, docs
