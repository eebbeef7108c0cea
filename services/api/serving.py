"""What serves now: the model server's state, routes, gateways and counts of requests."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Annotated, Literal

from fastapi import Query, Request
from pydantic import BaseModel, Field

from services.api.access import RoleRouter, Who
from services.api.dependencies import With
from services.api.views import RouteView
from services.gateway.latency_stats import LatencyPercentiles, answers, stages
from shared.domain.access import Role
from shared.domain.errors import Unavailable
from shared.domain.route import Route
from shared.ports import GatewayReport, ServerReplica

room = RoleRouter("serving")

_REMEMBERED = timedelta(minutes=10)
"""How long a silent gateway is still listed."""


class Replica(BaseModel):
    name: str
    state: Literal["ready", "loading", "down"] = Field(description="State; ready: the replica answers and has every version that it needs.")
    versions: dict[str, list[int]] = Field(description="Loaded versions by recommender.")
    fault: str | None = Field(description="Why the replica is not ready.")

    @classmethod
    def of(cls, replica: ServerReplica, who: Who) -> Replica:
        versions: dict[str, list[int]] = {}
        for name, number in replica.versions:
            if who.sees(name):
                versions.setdefault(name, []).append(number)
        scoped = who.principal.recommenders is not None
        fault = "shown only to tokens without a scope" if replica.fault and scoped else replica.fault  # it names recommenders
        return cls(name=replica.name, state=replica.state, versions=versions, fault=fault)


class Server(BaseModel):
    version: str | None = Field(description="Version of the model server; null if it does not answer.")
    models: list[dict[str, str]] = Field(description="Models of the model server: name, version, state and recommender.")
    replicas: list[Replica] = Field(description="Replicas; empty on a control plane without the placement lease.")
    fault: str | None


class GatewayView(BaseModel):
    name: str
    heard_at: datetime = Field(description="Time of its last report; a gateway reports twice a second.")
    serves: int = Field(description="Number of recommenders that the gateway serves and the token sees.")
    behind: list[str] = Field(description="Recommenders whose newest route the gateway does not serve yet.")

    @classmethod
    def of(cls, report: GatewayReport, routes: Mapping[str, Route]) -> GatewayView:
        behind = sorted(name for name, route in routes.items() if report.served.get(name, 0) < route.generation)
        return cls(name=report.name, heard_at=report.heard_at, serves=len(report.served.keys() & routes.keys()), behind=behind)


class Serving(BaseModel):
    server: Server
    gateways: list[GatewayView] = Field(description="Gateways that reported in the last ten minutes, also stopped ones.")
    routes: dict[str, RouteView]
    successes: dict[str, dict[int, int]] = Field(description="Successful inference requests by recommender and version.")


@room.get("/v1/serving", Role.VIEWER)
def get_serving(parts: With, who: Who) -> Serving:
    """Returns the state of the model server, the gateways and the routes."""
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
    stage: str = Field(description="Stage: `seen`, `retrieve`, `filter`, `features`, `score`, `order` or `log`.")
    count: int = Field(description="Number of measurements; requests of one batch count once.")
    p50: float = Field(description="Median in seconds, as exact as the buckets of the histogram.")
    p99: float = Field(description="99th percentile in seconds, at most the histogram's last bound.")

    @classmethod
    def of(cls, stage: str, times: LatencyPercentiles) -> TimesView:
        return cls(stage=stage, count=times.count, p50=times.p50, p99=times.p99)


class Latency(BaseModel):
    measured: bool = Field(description="Whether a gateway runs in this process; if false, see `/metrics` of each gateway.")
    whole: TimesView | None = Field(description="Times of complete answers, one per request, as stage `whole`; null before the first.")
    stages: list[TimesView] = Field(description="Stages in the order of an answer.")


@room.get("/v1/serving/latency", Role.VIEWER)
def get_latency(
    request: Request, who: Who, recommender: Annotated[str | None, Query(max_length=200, description="Only this recommender.")] = None
) -> Latency:
    """Returns the latency of answers of the gateway in this process, since its start."""

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
