"""Pages, one module each: a module calls the API and renders the answers."""

from __future__ import annotations

from starlette.routing import BaseRoute

from services.console.pages import (
    compare,
    drift,
    home,
    login,
    recommend,
    recommender,
    reference,
    rollouts,
    run,
    runs,
    serving,
    settings,
    spec,
    version,
)

_MODULES = (login, home, recommender, version, spec, runs, compare, run, drift, recommend, rollouts, serving, settings, reference)


def routes() -> list[BaseRoute]:
    return [route for module in _MODULES for route in module.pages.routes]
