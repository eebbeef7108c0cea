"""What serves now: the model server's state, routes, gateways and counts of requests."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Annotated, Literal

from fastapi import Query, Request
from pydantic import BaseModel, Field

from services.api.access import Room, Who
from services.api.dependencies import With
from services.api.views import RouteView
from services.gateway.latency_stats import Times, answers, stages
from shared.domain.access import Role
from shared.domain.errors import Unavailable
from shared.domain.route import Route
from shared.ports import GatewayReport, ServerReplica

room = Room("serving")

_REMEMBERED = timedelta(minutes=10)
"""How long a silent gateway is still listed."""


class Replica(BaseModel):
    name: str
    state: Literal["ready", "loading", "down"] = Field(description="ready: it answers, and has every version that it should.")
    versions: dict[str, list[int]] = Field(description="What it serves, by recommender.")
    fault: str | None = Field(description="Why it isn't ready.")

    @classmethod
    def of(cls, replica: ServerReplica, who: Who) -> Replica:
        versions: dict[str, list[int]] = {}
        for name, number in replica.versions:
            if who.sees(name):
                versions.setdefault(name, []).append(number)
        scoped = who.principal.recommenders is not None
        fault = "said to tokens without a scope alone" if replica.fault and scoped else replica.fault  # it names recommenders
        return cls(name=replica.name, state=replica.state, versions=versions, fault=fault)


class Server(BaseModel):
    version: str | None = Field(description="Null when the model server doesn't answer.")
    models: list[dict[str, str]] = Field(description="Name, version, state and recommender, as the model server lists them.")
    replicas: list[Replica] = Field(description="Empty on a control plane that isn't the one that places versions.")
    fault: str | None


class GatewayView(BaseModel):
    name: str
    heard_at: datetime = Field(description="When it last told what it serves; it does so every half second.")
    serves: int = Field(description="How many recommenders, of those that the token sees.")
    behind: list[str] = Field(description="Recommenders whose newest route it doesn't serve.")

    @classmethod
    def of(cls, report: GatewayReport, routes: Mapping[str, Route]) -> GatewayView:
        behind = sorted(name for name, route in routes.items() if report.served.get(name, 0) < route.generation)
        return cls(name=report.name, heard_at=report.heard_at, serves=len(report.served.keys() & routes.keys()), behind=behind)


class Serving(BaseModel):
    server: Server
    gateways: list[GatewayView] = Field(description="Those that told something in the last ten minutes; gone ones among them.")
    routes: dict[str, RouteView]
    successes: dict[str, dict[int, int]] = Field(description="Successful inference requests by recommender and version.")


@room.get("/v1/serving", Role.VIEWER)
def get_serving(parts: With, who: Who) -> Serving:
    """Returns what serves now."""
    visible = {name: route for name, route in parts.routes.all().items() if who.sees(name)}
    routes = {name: RouteView.of(route) for name, route in visible.items()}
    gateways = [GatewayView.of(gateway, visible) for gateway in parts.routes.gateways(parts.clock.now() - _REMEMBERED)]
    successes: dict[str, dict[int, int]] = {}
    try:
        info = parts.server.info()
        server = Server(
            version=info.version,
            models=[dict(model) for model in info.models if who.sees(model["recommender"])],
            replicas=[Replica.of(replica, who) for replica in info.replicas],
            fault=None,
        )
        for (name, version), count in parts.server.successes().items():
            if not who.sees(name):
                continue
            successes.setdefault(name, {})[version] = count
    except Unavailable as error:
        server = Server(version=None, models=[], replicas=[], fault=str(error))
    return Serving(server=server, gateways=gateways, routes=routes, successes=successes)


class TimesView(BaseModel):
    stage: str = Field(description="`seen`, `retrieve`, `filter`, `features`, `score`, `order` or `log`.")
    count: int = Field(description="How often it was timed: requests that came together count once.")
    p50: float = Field(description="In seconds, as exact as the buckets of the histogram are narrow.")
    p99: float = Field(description="In seconds; at most the histogram's last bound.")

    @classmethod
    def of(cls, stage: str, times: Times) -> TimesView:
        return cls(stage=stage, count=times.count, p50=times.p50, p99=times.p99)


class Latency(BaseModel):
    measured: bool = Field(
        description="False where no gateway is in the process that answers this: each gateway's own `/metrics` has its times."
    )
    whole: TimesView | None = Field(description="Whole answers, each request counted, as stage `whole`; null before the first.")
    stages: list[TimesView] = Field(description="In the order in which an answer goes through them.")


@room.get("/v1/serving/latency", Role.VIEWER)
def get_latency(
    request: Request, who: Who, recommender: Annotated[str | None, Query(max_length=200, description="Of this one alone.")] = None
) -> Latency:
    """Returns how long answers of the gateway in this process have taken since its start."""

    def sees(name: str) -> bool:
        return recommender in (None, name) and who.sees(name)

    if request.app.state.gateway is None:
        return Latency(measured=False, whole=None, stages=[])
    total = answers(sees)
    return Latency(
        measured=True,
        whole=None if total is None else TimesView.of("whole", total),
        stages=[TimesView.of(name, times) for name, times in stages(sees).items()],
    )
