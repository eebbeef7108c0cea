"""What serves right now: the model server's own words, the routes, and who answered how often."""

from __future__ import annotations

from pydantic import BaseModel, Field

from services.api.access import Room, Who
from services.api.parts import With
from services.api.views import RouteView
from shared.domain.access import Role
from shared.domain.errors import Unavailable

room = Room("serving")


class Server(BaseModel):
    version: str | None = Field(description="Null when the model server doesn't answer.")
    models: list[dict[str, str]] = Field(description="Name, version, state and recommender, as the model server lists them.")
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
        server = Server(version=info.version, models=[dict(one) for one in info.models if who.sees(one["recommender"])], fault=None)
        for (name, version), count in parts.server.successes().items():
            if not who.sees(name):
                continue
            successes.setdefault(name, {})[version] = count
    except Unavailable as error:
        server = Server(version=None, models=[], fault=str(error))
    return Serving(server=server, routes=routes, successes=successes)
