"""What serves right now: the model server's own words, the routes, and who answered how often."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, Field

from services.api.access import Room, Who
from services.api.parts import With
from services.api.views import RouteView
from shared.domain.access import Role
from shared.domain.errors import Unavailable
from shared.ports import ServerReplica

room = Room("serving")


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


class Serving(BaseModel):
    server: Server
    routes: dict[str, RouteView]
    successes: dict[str, dict[int, int]] = Field(description="Successful inference requests by recommender and version.")


@room.get("/v1/serving", Role.VIEWER)
def get_serving(parts: With, who: Who) -> Serving:
    """What answers right now."""
    routes = {name: RouteView.of(route) for name, route in parts.routes.all().items() if who.sees(name)}
    successes: dict[str, dict[int, int]] = {}
    try:
        info = parts.server.info()
        server = Server(
            version=info.version,
            models=[dict(one) for one in info.models if who.sees(one["recommender"])],
            replicas=[Replica.of(one, who) for one in info.replicas],
            fault=None,
        )
        for (name, version), count in parts.server.successes().items():
            if not who.sees(name):
                continue
            successes.setdefault(name, {})[version] = count
    except Unavailable as error:
        server = Server(version=None, models=[], replicas=[], fault=str(error))
    return Serving(server=server, routes=routes, successes=successes)
