"""Operations of the API by kind of object. `Client` and `AsyncClient` have them all."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, TypeAlias, TypeVar

from eyas_client import answers
from eyas_client.answers import (
    AppliedRecommender,
    Deleted,
    Drift,
    EventsAccepted,
    Kpis,
    Page,
    PastRoute,
    Plan,
    Recommendations,
    Recommender,
    Rollback,
    Rollout,
    Rows,
    Run,
    Scores,
    SimilarItems,
    ValidSpec,
    Version,
    Written,
)
from eyas_client.batches import MIB, batches, body
from eyas_client.errors import EyasError
from eyas_client.operation import Group, M, Operation, Request, StepGenerator, Steps, T, encode, get, post, segment
from eyas_client.waiting import check_success, wait

MOST_EVENTS = 1_000
MOST_ITEMS = 10_000
MOST_VALUES = 150_000
MOST_VALUES_OF_DELETION = 16_000
PAGE = 200
"""Largest page of a list."""
RUN_ENDS = ("registered", "rejected", "failed", "cancelled")
ROLLOUT_ENDS = ("promoted", "rolled_back", "aborted")

Id: TypeAlias = int | str
Mode: TypeAlias = Literal["full", "warm", "auto"]
Spec: TypeAlias = str | os.PathLike[str] | Mapping[str, Any]
"""A spec: its YAML or JSON text, the path of its file, or its document."""

R = TypeVar("R", bound=answers.Row)


def _recommender(name: str, rest: str = "") -> str:
    return f"/v1/recommenders/{segment(name)}{rest}"


def _run(id: str) -> Request[Run]:
    return get(f"/v1/runs/{segment(id)}", Run)


def _rollout(id: str) -> Request[Rollout]:
    return get(f"/v1/rollouts/{segment(id)}", Rollout)


def _rows(request: Request[Page[R]], caption: str, row_type: type[R], limit: int | None) -> StepGenerator[Rows[R]]:
    """Reads pages until there are `limit` rows; all pages if it is None."""
    rows: Rows[R] = Rows(caption, row_type.columns)
    cursor: str | None = None
    while limit is None or len(rows) < limit:
        size = PAGE if limit is None else min(PAGE, limit - len(rows))
        query = {**request.query, "limit": size} | ({} if cursor is None else {"cursor": cursor})
        page = yield from replace(request, query=query)
        rows += page.items
        cursor = page.next
        if cursor is None:
            break
    return rows


def _spec_post(path: str, answer: type[T], spec: Spec, keyed: bool = True, **query: Any) -> Request[T]:
    """JSON is YAML too, so every text is sent as YAML."""
    if isinstance(spec, Mapping):
        content, media = encode(spec), "application/json"
    else:
        is_file = not isinstance(spec, str) or ("\n" not in spec and not spec.lstrip().startswith("{"))
        content, media = (Path(spec).read_bytes() if is_file else str(spec).encode()), "application/yaml"
    return Request("POST", path, answer, query, content, media, key=uuid.uuid4().hex if keyed else None)


class Items(Group[M]):
    """Catalogue of items of a recommender."""

    @Operation
    def put(self, name: str, items: Iterable[Mapping[str, Any]]) -> StepGenerator[Written]:
        """Replaces items: `item`, and optionally `attributes` and `available`. Sent in batches, each written as a whole or not at all."""
        total = Written(accepted=0, changed=0)
        for batch in batches(map(encode, items), MOST_ITEMS, MIB, MOST_VALUES):
            request = Request("PUT", f"/v1/items/{segment(name)}", Written, body=body("items", batch))
            written = yield from _after(request, total.accepted, "items")
            total = Written(accepted=total.accepted + written.accepted, changed=total.changed + written.changed)
        return total

    @Operation
    def delete(self, name: str, items: Iterable[Id]) -> StepGenerator[Deleted]:
        """Deletes items by id; unknown ids are skipped."""
        deleted = 0
        for batch in batches(map(encode, items), MOST_ITEMS, MIB // 4, MOST_VALUES_OF_DELETION):
            request = replace(post(f"/v1/items/{segment(name)}:delete", Deleted), body=body("items", batch))
            deleted += (yield from _after(request, deleted, "items")).deleted
        return Deleted(deleted=deleted)

    @Operation
    def get(self, name: str, item: Id) -> Request[answers.Item]:
        return get(f"/v1/items/{segment(name)}/{segment(item)}", answers.Item)

    @Operation
    def list(self, name: str, limit: int | None = 100) -> Steps[Rows[answers.Item]]:
        """Items in the order of keys; all of them if `limit` is None."""
        return _rows(get(f"/v1/items/{segment(name)}", Page[answers.Item]), "items", answers.Item, limit)


def _after(request: Request[T], count: int, of: str) -> StepGenerator[T]:
    """Sends a batch; an error says how many rows earlier batches have brought."""
    try:
        return (yield from request)
    except EyasError as error:
        if count:
            error.detail += f" ({count} {of} of earlier batches were accepted)"
        raise


class Recommenders(Group[M]):
    @Operation
    def apply(self, spec: Spec, run: bool = True) -> Request[AppliedRecommender]:
        """Creates or changes a recommender; a changed spec starts a run, unless `run` is False."""
        return _spec_post("/v1/recommenders", AppliedRecommender, spec, run=run)

    @Operation
    def validate(self, spec: Spec) -> Request[ValidSpec]:
        """Checks a spec without changing anything. Raises Invalid, which lists the wrong fields."""
        return _spec_post("/v1/recommenders:validate", ValidSpec, spec, keyed=False)

    @Operation
    def plan(self, spec: Spec, mode: Mode = "full") -> Request[Plan]:
        """Shows what a run of the spec would do."""
        return _spec_post("/v1/recommenders:plan", Plan, spec, keyed=False, mode=mode)

    @Operation
    def get(self, name: str) -> Request[Recommender]:
        return get(_recommender(name), Recommender)

    @Operation
    def list(self, limit: int | None = 100) -> Steps[Rows[Recommender]]:
        return _rows(get("/v1/recommenders", Page[Recommender]), "recommenders", Recommender, limit)

    @Operation
    def delete(self, name: str) -> Request[None]:
        """Deletes a recommender with its versions. A retry of a delete that took effect raises NotFound."""
        return Request("DELETE", _recommender(name), type(None))

    @Operation
    def rollback(self, name: str, to: int | None = None, reason: str = "") -> Request[Rollback]:
        """Sends all users back to the previous version, or to version `to`."""
        return post(_recommender(name, ":rollback"), Rollback, {"to": to, "reason": reason})

    @Operation
    def history(self, name: str, limit: int | None = 100) -> Steps[Rows[PastRoute]]:
        """Versions that served and when, the newest first."""
        return _rows(get(_recommender(name, "/history"), Page[PastRoute]), "history", PastRoute, limit)


class Runs(Group[M]):
    @Operation
    def start(self, name: str, mode: Mode = "full", *, reason: str = "", priority: int = 0, fresh: bool = False) -> Request[Run]:
        """Starts a run of the current spec. `fresh`: without stages reused from earlier runs."""
        terms = {"mode": mode, "reason": reason, "priority": priority, "fresh": fresh}
        return post(_recommender(name, "/runs"), Run, terms)

    @Operation
    def get(self, id: str) -> Request[Run]:
        return _run(id)

    @Operation
    def list(self, name: str | None = None, *, state: str | Sequence[str] | None = None, limit: int | None = 100) -> Steps[Rows[Run]]:
        """Runs of a recommender, or of all, the newest first."""
        path = "/v1/runs" if name is None else _recommender(name, "/runs")
        return _rows(get(path, Page[Run], state=state), "runs", Run, limit)

    @Operation
    def cancel(self, id: str, reason: str = "") -> Request[Run]:
        return post(f"/v1/runs/{segment(id)}:cancel", Run, {"reason": reason})

    @Operation
    def wait(
        self,
        id: str,
        timeout: float | None = 3600,
        *,
        every: float = 1.0,
        progress: Callable[[Run], object] | None = None,
        check: bool = False,
    ) -> StepGenerator[Run]:
        """Waits for the end and returns the run; `progress` gets each change. With `check`, a run that is not registered raises
        Unsuccessful."""
        run = yield from wait(_run(id), RUN_ENDS, timeout, every, progress)
        return check_success(run, "registered") if check else run


class Versions(Group[M]):
    @Operation
    def get(self, name: str, version: int) -> Request[Version]:
        return get(_recommender(name, f"/versions/{segment(version)}"), Version)

    @Operation
    def list(self, name: str, limit: int | None = 100) -> Steps[Rows[Version]]:
        """Versions, the newest first."""
        return _rows(get(_recommender(name, "/versions"), Page[Version]), "versions", Version, limit)

    @Operation
    def card(self, name: str, version: int) -> Request[dict[str, Any]]:
        """Model card: data, training, metrics, gates, lineage."""
        return get(_recommender(name, f"/versions/{segment(version)}/card"), dict[str, Any])


class Rollouts(Group[M]):
    @Operation
    def start(self, name: str, version: int, reason: str = "") -> Request[Rollout]:
        return post(_recommender(name, "/rollouts"), Rollout, {"version": version, "reason": reason})

    @Operation
    def get(self, id: str) -> Request[Rollout]:
        return _rollout(id)

    @Operation
    def list(self, name: str, *, state: str | Sequence[str] | None = None, limit: int | None = 100) -> Steps[Rows[Rollout]]:
        """Rollouts, the newest first."""
        return _rows(get(_recommender(name, "/rollouts"), Page[Rollout], state=state), "rollouts", Rollout, limit)

    @Operation
    def pause(self, id: str, reason: str = "") -> Request[Rollout]:
        return _steer(id, "pause", reason)

    @Operation
    def resume(self, id: str, reason: str = "") -> Request[Rollout]:
        return _steer(id, "resume", reason)

    @Operation
    def skip(self, id: str, reason: str = "") -> Request[Rollout]:
        """Goes to the next step without a verdict."""
        return _steer(id, "skip", reason)

    @Operation
    def promote(self, id: str, reason: str = "") -> Request[Rollout]:
        """Sends all users to the new version, without more evidence."""
        return _steer(id, "promote", reason)

    @Operation
    def abort(self, id: str, reason: str = "") -> Request[Rollout]:
        """Sends all users back to the stable version."""
        return _steer(id, "abort", reason)

    @Operation
    def wait(
        self,
        id: str,
        timeout: float | None = 3600,
        *,
        every: float = 1.0,
        progress: Callable[[Rollout], object] | None = None,
        check: bool = False,
    ) -> StepGenerator[Rollout]:
        """Waits for the end and returns the rollout; a paused rollout has not ended. With `check`, a rollout that is not promoted raises
        Unsuccessful."""
        rollout = yield from wait(_rollout(id), ROLLOUT_ENDS, timeout, every, progress)
        return check_success(rollout, "promoted") if check else rollout


def _steer(id: str, verb: str, reason: str) -> Request[Rollout]:
    return post(f"/v1/rollouts/{segment(id)}:{verb}", Rollout, {"reason": reason})


class Platform(Group[M]):
    """All operations of the client."""

    def __init__(self, run: Callable[[Steps[Any]], Any]) -> None:
        super().__init__(run)
        self.items: Items[M] = Items(run)
        self.recommenders: Recommenders[M] = Recommenders(run)
        self.runs: Runs[M] = Runs(run)
        self.versions: Versions[M] = Versions(run)
        self.rollouts: Rollouts[M] = Rollouts(run)

    @Operation
    def recommend(  # noqa: PLR0913  the fields of a request
        self,
        name: str,
        user: Id,
        k: int = 10,
        *,
        exclude: Sequence[Id] = (),
        context: Mapping[str, Any] | None = None,
        items: Sequence[Id] = (),
        slots: Mapping[str, int] | None = None,
        explain: bool = False,
        trial: bool = False,
    ) -> Request[Recommendations]:
        """Recommends `k` items, or items for the places of a page (`slots`). An answer is logged unless it is a trial, so a request
        whose answer got lost is not sent again."""
        question: dict[str, Any] = {"user": user, "exclude": exclude, "context": context or {}, "items": items}
        question |= {"k": k} if slots is None else {"slots": slots}
        path, query = f"/v1/recommend/{segment(name)}", {"explain": explain, "trial": trial}
        return Request("POST", path, Recommendations, query, encode(question), repeatable=trial)

    @Operation
    def similar(
        self, name: str, item: Id, k: int = 10, *, exclude: Sequence[Id] = (), context: Mapping[str, Any] | None = None
    ) -> Request[SimilarItems]:
        """Items similar to an item, by the vectors of the stable version."""
        question = {"item": item, "k": k, "exclude": exclude, "context": context or {}}
        return Request("POST", f"/v1/similar/{segment(name)}", SimilarItems, body=encode(question))

    @Operation
    def score(self, name: str, user: Id, items: Sequence[Id]) -> Request[Scores]:
        """Scores the items for the user, in their order."""
        return Request("POST", f"/v1/score/{segment(name)}", Scores, body=encode({"user": user, "items": items}))

    @Operation
    def events(self, name: str, events: Iterable[Mapping[str, Any]]) -> StepGenerator[EventsAccepted]:
        """Sends events in batches. Each event gets an `id` if it has none, so that a retry counts nothing twice; set your own ids if
        you may call this again with the same events."""
        total = EventsAccepted(accepted=0, duplicates=0, conflicts=0, hits=0, refused=0, lines=[])
        rows = (encode(_identified(name, event)) for event in events)
        for batch in batches(rows, MOST_EVENTS, MIB, MOST_VALUES):
            request = Request("POST", "/v1/events", EventsAccepted, body=body("events", batch))
            accepted = yield from _after(request, total.accepted, "events")
            total = EventsAccepted(
                accepted=total.accepted + accepted.accepted,
                duplicates=_sum(total.duplicates, accepted.duplicates),
                conflicts=_sum(total.conflicts, accepted.conflicts),
                hits=_sum(total.hits, accepted.hits),
                refused=total.refused + accepted.refused,
                lines=total.lines + accepted.lines,
            )
        return total

    @Operation
    def kpis(self, name: str, window: str = "1h") -> Request[Kpis]:
        """KPIs of each version in the newest window, such as 30m, 6h or 7d."""
        return get(_recommender(name, "/kpis"), Kpis, window=window)

    @Operation
    def drift(self, name: str) -> Request[Drift]:
        return get(_recommender(name, "/drift"), Drift)


def _identified(name: str, event: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the event with recommender and id. What a front end showed (an `impression`) has its `request_id` instead."""
    own = {} if event.get("kind") == "impression" else {"id": uuid.uuid4().hex}
    return {"recommender": name, **own, **{field: value for field, value in event.items() if value is not None}}


def _sum(total: int | None, count: int | None) -> int | None:
    return None if total is None or count is None else total + count
