"""Panel types with a common form: title, unit, description, link to a document, data source."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

from grafana_foundation_sdk.builders import bargauge, dashboard, stat, statetimeline, timeseries
from grafana_foundation_sdk.builders.common import ReduceDataOptions, VizLegendOptions, VizTooltipOptions
from grafana_foundation_sdk.builders.prometheus import Dataquery
from grafana_foundation_sdk.models.common import LegendDisplayMode, LegendPlacement, TooltipDisplayMode
from grafana_foundation_sdk.models.dashboard import DashboardLinkType, DataSourceRef, ValueMap, ValueMappingResult
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

SOURCE = DataSourceRef(type_val="prometheus", uid="${datasource}")
RATE = "[$__rate_interval]"
COUNT, SHARE, SECONDS, BYTES, BITS, PLAIN = "short", "percentunit", "s", "bytes", "suffix: bits", "none"
PER_SECOND, REQUESTS = "cps", "reqps"
"""Units by Grafana's names."""
HEIGHT = 8
_REFS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


@dataclass(frozen=True)
class Query:
    expr: str
    legend: str = ""


@dataclass(frozen=True)
class Shown:
    """Content of a panel. `page` is an anchor in docs/how-to, for example `operate.md#eyasdrift`."""

    title: str
    unit: str
    about: str
    page: str
    queries: tuple[Query, ...]
    width: int = 12


Panel = bargauge.Panel | stat.Panel | statetimeline.Panel | timeseries.Panel
P = TypeVar("P", bargauge.Panel, stat.Panel, statetimeline.Panel, timeseries.Panel)


def lines(title: str, unit: str, about: str, page: str, *queries: Query, width: int = 8) -> timeseries.Panel:
    """Time series."""
    made = timeseries.Panel().fill_opacity(0).line_width(1).span_nulls(60_000.0)
    made.legend(VizLegendOptions().display_mode(LegendDisplayMode.LIST).placement(LegendPlacement.BOTTOM).show_legend(True))
    made.tooltip(VizTooltipOptions().mode(TooltipDisplayMode.MULTI))
    return _filled(made, Shown(title, unit, about, page, queries, width))


def number(title: str, unit: str, about: str, page: str, query: Query, width: int = 4) -> stat.Panel:
    """Newest value."""
    made = stat.Panel().reduce_options(ReduceDataOptions().calcs(["lastNotNull"]))
    return _filled(made, Shown(title, unit, about, page, (query,), width), now=True)


def bars(title: str, unit: str, about: str, page: str, query: Query, width: int = 8) -> bargauge.Panel:
    """Newest values as bars."""
    made = bargauge.Panel().reduce_options(ReduceDataOptions().calcs(["lastNotNull"]))
    return _filled(made, Shown(title, unit, about, page, (query,), width), now=True)


def states(title: str, about: str, page: str, query: Query, names: dict[int, tuple[str, str]], width: int = 12) -> statetimeline.Panel:
    """Numeric states over time; `names` gives text and colour of each value."""
    words = {str(value): ValueMappingResult(text=text, color=colour, index=at) for at, (value, (text, colour)) in enumerate(names.items())}
    made = statetimeline.Panel().mappings([ValueMap(options=words)])
    return _filled(made, Shown(title, PLAIN, about, page, (query,), width))


def _filled(made: P, shown: Shown, *, now: bool = False) -> P:
    made.title(shown.title).description(shown.about).unit(shown.unit).datasource(SOURCE).no_value("no data yet")
    made.height(HEIGHT).span(shown.width)
    link = dashboard.DashboardLink(shown.page.rpartition("#")[2] or shown.page)
    made.links([link.type(DashboardLinkType.LINK).url(f"${{docs}}/how-to/{shown.page}").target_blank(True)])
    for ref, query in zip(_REFS, shown.queries, strict=False):
        asked = Dataquery().expr(query.expr).legend_format(query.legend or "__auto").ref_id(ref).datasource(SOURCE)
        made.with_target((asked.instant() if now else asked.range()).format(PromQueryFormat.TIME_SERIES))
    return made
