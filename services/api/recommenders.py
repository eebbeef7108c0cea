"""Recommenders: specs by name, what serves, and rollback."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Annotated, Any

from fastapi import Path, Query, Response
from fastapi import Request as HttpRequest
from pydantic import BaseModel, Field

from services.api.access import Caller, RoleRouter, Who
from services.api.bodies import SPEC_BODY, SpecBody
from services.api.data_locations import check_spec, faults_of_places, resolve_spec
from services.api.dependencies import ControlParts, With
from services.api.etags import NOT_MODIFIED, ExpectedOrNew, tagged
from services.api.paging import Page, Pages, Paging
from services.api.rate_limits import HEAVY
from services.api.spec_names import check_names
from services.api.state_requests import Why, ask
from services.api.views import AppliedRecommender, RecommenderView, RouteView, ServingRecommender, SpecEntry, SpecView, Valid
from shared.contracts.editor_schema import editor_schema
from shared.contracts.spec import RecommenderSpec
from shared.domain.access import Role, may
from shared.domain.errors import Conflict, Invalid, NotFound, Unreadable
from shared.domain.machine import Request
from shared.domain.rollout import ANSWERS
from shared.domain.route import Route
from shared.ports import Recommender, RunRecord
from shared.run_factory import RunTerms, back_rollout, new_run

room = RoleRouter("recommenders")

Generation = Annotated[int, Path(ge=1, le=2**31 - 1, description="Generation of the spec.")]
Prefix = Annotated[str | None, Query(max_length=60, description="Only names that begin with this text.")]
Run = Annotated[bool, Query(description="Start a run if the spec is new or changed.")]


class Back(Why):
    to: int | None = Field(None, ge=1, description="Version to return to; its files must still exist. When absent, the previous version.")


class RolledBack(BaseModel):
    stable: int = Field(description="Number of the stable version now.")
    aborted: list[str]
    """Rollouts that were asked to abort."""
    rollout: str | None = Field(description="Rollout that loads the version and then moves all users to it; null if it was loaded.")


@room.create(
    "/v1/recommenders",
    Role.OPERATOR,
    status_code=201,
    responses={200: {"model": AppliedRecommender, "description": "The recommender exists; the spec is changed or equal"}},
    openapi_extra=SPEC_BODY,
    work=HEAVY,
)
def apply_recommender(parts: With, who: Who, spec: SpecBody, response: Response, run: Run = True) -> AppliedRecommender:
    """Creates a recommender or changes its spec; an equal spec changes nothing."""
    return _apply(parts, who, spec, response, run)


@room.put(
    "/v1/recommenders/{name}",
    Role.OPERATOR,
    responses={201: {"model": AppliedRecommender, "description": "The recommender is new"}},
    openapi_extra=SPEC_BODY,
    work=HEAVY,
)
def put_recommender(
    parts: With, who: Who, name: str, spec: SpecBody, response: Response, expected: ExpectedOrNew, run: Run = True
) -> AppliedRecommender:
    """Creates or changes a recommender. `If-Match` changes only the generation that the caller has read; without it, any generation is
    replaced."""
    if spec.name != name:
        raise Invalid(f"name: the spec says '{spec.name}', the address says '{name}'")
    return _apply(parts, who, spec, response, run, expected)


def _apply(
    parts: ControlParts, who: Caller, spec: RecommenderSpec, response: Response, run: bool, expected: Container[int] | None = None
) -> AppliedRecommender:
    who.enters(spec.name)
    spec = resolve_spec(parts, spec)
    warnings = check_names(parts, spec)
    now = parts.clock.now()
    route = parts.routes.get(spec.name)

    def full_run(changed: Recommender) -> RunRecord:
        cause = "the spec is new" if _is_new(changed) else "the spec changed"
        return new_run(changed, who.fresh_id("r", now), "full", cause, route.stable if route else None, now, RunTerms(who.name))

    result = parts.recommenders.put(spec, now, who.name, expected, full_run if run else None)
    stored, started = result.recommender, result.run
    applied = result.changed or started is not None
    if not run and who.once is not None and who.once.again:  # no run shows whether the killed process stored the spec
        applied |= stored.updated_at >= who.once.at
    response.status_code = 201 if applied and _is_new(stored) else 200
    if applied:
        parts.wake()
    return AppliedRecommender(**RecommenderView.fields(stored), run=started.id if started else None, warnings=warnings)


def _is_new(recommender: Recommender) -> bool:
    return recommender.created_at == recommender.updated_at


@room.post("/v1/recommenders:validate", Role.VIEWER, audited=False, openapi_extra=SPEC_BODY, work=HEAVY)
def validate_spec(parts: With, who: Who, spec: SpecBody) -> Valid:
    """Validates a spec and returns it with every default filled in. Writes nothing. Reads a file of campaigns only for operators."""
    is_operator = may(who.principal, Role.OPERATOR)
    if is_operator:
        spec = resolve_spec(parts, spec)
    else:
        check_spec(parts, spec)
    warnings = check_names(parts, spec, is_operator) if who.sees(spec.name) else []
    return Valid(spec=spec.document(), warnings=faults_of_places(parts, spec) + warnings)


@room.get("/v1/recommenders", Role.VIEWER)
def list_recommenders(
    parts: With,
    who: Who,
    pages: Pages,
    prefix: Prefix = None,
    serving: Annotated[bool | None, Query(description="Only recommenders that serve (true), or do not serve yet (false).")] = None,
) -> Page[ServingRecommender]:
    """Lists recommenders by name."""
    routes = parts.routes.all()
    recommenders = readable(parts, who, pages, prefix, lambda name: serving is None or serving == (name in routes))
    return pages.page(
        recommenders, lambda recommender: recommender.name, lambda recommender: _view(recommender, routes.get(recommender.name))
    )


def readable(
    parts: ControlParts, who: Caller, pages: Paging, prefix: str | None, keep: Callable[[str], bool] = lambda name: True
) -> Sequence[Recommender]:
    """Reads only the page's specs; skips unreadable ones."""
    after = pages.text
    names = (
        name
        for name in sorted(parts.recommenders.heads())
        if who.sees(name) and (after is None or name > after) and name.startswith(prefix or "") and keep(name)
    )
    return list(itertools.islice(_read(parts, names), pages.more))


def _read(parts: ControlParts, names: Iterable[str]) -> Iterator[Recommender]:
    for name in names:
        with suppress(NotFound, Invalid, Unreadable):
            yield parts.recommenders.get(name)


@room.get("/v1/recommenders/{name}", Role.VIEWER, response_model=ServingRecommender, responses=NOT_MODIFIED)
def get_recommender(parts: With, name: str, request: HttpRequest, response: Response) -> ServingRecommender | Response:
    """Returns the spec of a recommender, and what serves."""
    recommender = parts.recommenders.get(name)
    return tagged(request, response, recommender.generation, _view(recommender, parts.routes.get(name)))


@room.get("/v1/recommenders/{name}/specs", Role.VIEWER)
def list_specs(parts: With, name: str, pages: Pages) -> Page[SpecEntry]:
    """Lists every generation of a recommender's spec, the newest first: who wrote it and when."""
    parts.recommenders.get(name)
    entries = parts.recommenders.writings(name, pages.more, pages.number)
    return pages.page(entries, lambda entry: entry.generation, lambda entry: SpecEntry.model_validate(entry, from_attributes=True))


@room.get("/v1/recommenders/{name}/specs/{generation}", Role.VIEWER)
def get_spec(parts: With, name: str, generation: Generation) -> SpecView:
    """Returns a generation of the spec as it was stored, with every default of its time filled in."""
    parts.recommenders.get(name)
    writing = parts.recommenders.writing(name, generation)
    return SpecView(generation=writing.generation, at=writing.at, actor=writing.actor, spec=dict(writing.document))


@room.delete("/v1/recommenders/{name}", Role.ADMIN, status_code=204)
def delete_recommender(parts: With, who: Who, name: str) -> None:
    """Deletes a recommender: nothing serves, nothing retrains, and its versions may be collected, except tagged ones.

    Refused while a run or a rollout is active. Histories and the audit log stay. Deletion is final: a spec of that name makes a new
    recommender, whose generations go on.
    """
    parts.recommenders.delete(name, parts.clock.now())
    parts.features.drop(name)
    parts.wake()


@room.create("/v1/recommenders/{name}:rollback", Role.OPERATOR, status_code=202)
def roll_back(parts: With, who: Who, name: str, body: Back | None = None) -> RolledBack:
    """Returns every user to a proven version, without analysis.

    An active rollout is aborted, and nothing else happens unless another version is named. Otherwise the previous stable version, or the
    named one, returns: at once if it is loaded, else by a rollout that loads it first.
    """
    body = body or Back()
    who.says(body.reason)
    recommender = parts.recommenders.get(name)
    route = parts.routes.get(name)
    if route is None:
        raise Conflict(f"recommender '{name}' serves nothing yet: there is no version to roll back to")
    if (done := _done_before(parts, who, name, route)) is not None:
        return done
    active = sorted(parts.rollouts.list(name, active=True), key=lambda rollout: (rollout.created_at, rollout.id))
    target = _target(parts, name, route, body.to, bool(active))
    for rollout in active:
        ask(parts, who, parts.rollouts, ANSWERS, "rollout", rollout.id, "abort", Why(reason=body.reason))
    aborted = [rollout.id for rollout in active]
    if target == route.stable:
        return RolledBack(stable=target, aborted=aborted, rollout=None)
    request = Request("rollback", who.name, body.reason)
    if active or target not in parts.server.answering(name):
        return RolledBack(stable=route.stable, aborted=aborted, rollout=_start_back(parts, who, recommender, target, request))
    now_serving = parts.routes.put(name, Route(target), parts.clock.now(), who.name, request.summary())
    parts.wake()
    return RolledBack(stable=now_serving.stable, aborted=[], rollout=None)


def _done_before(parts: ControlParts, who: Caller, name: str, route: Route) -> RolledBack | None:
    """Returns what a killed process has done for this request."""
    if who.once is None or not who.once.again:
        return None
    last = parts.routes.history(name, 1)[0]
    if last.actor == who.name and last.reason.startswith("rollback ") and last.route.since and last.route.since >= who.once.at:
        return RolledBack(stable=route.stable, aborted=[], rollout=None)
    try:
        begun = parts.rollouts.get(who.fresh_id("o", parts.clock.now()))
    except NotFound:
        return None
    return RolledBack(stable=route.stable, aborted=[], rollout=begun.id)


def _target(parts: ControlParts, name: str, route: Route, wanted: int | None, active: bool) -> int:
    """Returns the version to go to: the stable one if only an active rollout is to end."""
    if wanted is not None:
        gone = parts.registry.collected(name)
        if parts.registry.get(name, wanted).number in gone:
            raise Conflict(f"version {wanted} of '{name}' was collected on {gone[wanted]:%Y-%m-%d}: its files are deleted; choose another")
        if wanted == route.stable and not active:
            raise Conflict(f"version {wanted} of '{name}' already serves all users")
        return wanted
    if active:
        return route.stable
    previous = parts.routes.previous(name)
    if previous is None:
        raise Conflict(f"recommender '{name}' has no version before {route.stable} to roll back to; set `to`")
    return previous


def _start_back(parts: ControlParts, who: Caller, recommender: Recommender, target: int, request: Request) -> str:
    now = parts.clock.now()
    id = who.fresh_id("o", now)
    parts.rollouts.create(back_rollout(recommender, target, id, request, now), who.name)
    parts.wake()
    return id


@room.get("/v1/schema", Role.VIEWER, tags=["specs"])
def get_spec_schema() -> dict[str, Any]:
    """Returns the JSON schema of the spec, for editors."""
    return editor_schema()


def _view(recommender: Recommender, route: Route | None) -> ServingRecommender:
    return ServingRecommender(**RecommenderView.fields(recommender), serving=RouteView.of(route) if route else None)
