"""Timeline of a recommender, merged from several histories: events, the newest first; marked events have a letter."""

from __future__ import annotations

import string
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import zip_longest
from typing import Any

from services.console.charts import EventMark, ShadedPeriod
from services.console.formatting import moment, plain, share
from shared.domain.segments import way

Json = dict[str, Any]

_RUNS = {"registered": "", "rejected": "bad", "failed": "bad", "cancelled": "plain"}
_ROLLOUTS = {"promoted": "good", "rolled_back": "bad", "aborted": "plain"}


@dataclass(frozen=True)
class Event:
    at: datetime
    summary: str
    reason: str
    actor: str
    link: str | None = None
    state: str = ""
    """State of the linked run or rollout."""
    tone: str = "plain"
    letter: str = ""

    @property
    def when(self) -> str:
        """Time with seconds, to distinguish events of the same age."""
        return self.at.astimezone(UTC).strftime("%b %d %H:%M:%S")


def happened(
    place: str,
    served: Sequence[Json],
    runs: Sequence[Json],
    rollouts: Sequence[Json],
    fired: Sequence[Json],
    specs: Sequence[Json],
    ends: Mapping[str, str] = {},
) -> list[Event]:
    """Merges the API's lists, the newest first. `place` is the recommender's address; `ends` gives the end times of runs."""
    events = [
        *_of_routes(place, served, rollouts),
        *_of_runs(runs, ends),
        *_of_triggers(fired, {run["cause"] for run in runs}),
        *_of_specs(place, specs),
    ]
    return sorted(events, key=lambda event: event.at, reverse=True)


def _of_routes(place: str, served: Sequence[Json], rollouts: Sequence[Json]) -> Iterable[Event]:
    ended = {rollout["id"]: rollout for rollout in rollouts if rollout["state"] in _ROLLOUTS}
    by_hand = {rollout["id"]: rollout for rollout in rollouts if rollout["asked_by"] is not None}
    for route, before in zip_longest(served, served[1:]):
        at = moment(route["since"])
        if at is None:
            continue
        version = f"{place}/versions/{route['stable']}"
        if before is None or before.get("until") != route["since"]:
            if route["generation"] == 1 or before is not None:  # without a gap or generation 1, the entry is only the oldest that was read
                yield Event(
                    at, f"Version {route['stable']}, the first one, serves all users", route["reason"], route["actor"], version, tone="good"
                )
        elif route["rollout"]:
            yield _describe_step(at, route, before, by_hand)
        else:
            yield from _describe_end(at, route, before, ended, version)
    routed_ids = {route["rollout"] for route in served}
    for id, rollout in ended.items():
        at = moment(rollout["since"])
        if id not in routed_ids and at is not None and rollout["state"] != "promoted":  # ended before any user got the candidate
            summary = f"Rollout of version {rollout['version']} ended before any user got it"
            yield Event(at, summary, rollout["reason"], "", way("rollouts", id), rollout["state"], _ROLLOUTS[rollout["state"]])


def _describe_step(at: datetime, route: Json, before: Json, by_hand: Mapping[str, Json]) -> Event:
    """A rollout that begins or continues."""
    link = way("rollouts", route["rollout"])
    if route["rollout"] == before["rollout"]:
        summary = f"Version {route['candidate']} gets {share(route['weight'])} of the users"
        return Event(at, summary, route["reason"], route["actor"], link, tone="")
    where = "in shadow" if route["shadow"] else f"at {share(route['weight'])}"
    begun = by_hand.get(route["rollout"], {"asked_by": route["actor"], "cause": ""})
    why = "; ".join(text for text in (begun["cause"], route["reason"]) if text)
    return Event(at, f"Rollout of version {route['candidate']} begins, {where}", why, begun["asked_by"], link, tone="busy")


def _describe_end(at: datetime, route: Json, before: Json, ended: Mapping[str, Json], version: str) -> Iterable[Event]:
    """End of the rollout in `before`, or a change of the version without a rollout."""
    rollout_id = before["rollout"]
    link = way("rollouts", rollout_id) if rollout_id else None
    if before["candidate"] is not None and route["stable"] == before["candidate"]:
        yield Event(at, f"Version {route['stable']} serves all users", route["reason"], route["actor"], link, "promoted", "good")
    elif before["candidate"] is not None and route["stable"] == before["stable"]:
        state = ended.get(rollout_id, {}).get("state", "rolled_back")
        summary = f"Version {before['candidate']} is withdrawn, version {route['stable']} serves all users"
        yield Event(at, summary, route["reason"], route["actor"], link, state, _ROLLOUTS.get(state, "plain"))
    elif route["stable"] != before["stable"]:
        summary = f"Version {route['stable']} serves all users instead of version {before['stable']}"
        yield Event(at, summary, route["reason"], route["actor"], version, tone="bad")


def _of_runs(runs: Sequence[Json], ends: Mapping[str, str]) -> Iterable[Event]:
    for run in runs:
        at, by, state = moment(run["created_at"]), run["asked_by"] or "", run["state"]
        link = way("runs", run["id"])
        summary = "Retraining begins" if by == "eyas" else "Run begins"
        yield Event(at, f"{summary} ({plain(run['mode'])})", run["cause"], by, link, "", "busy")
        if state in _RUNS:
            ended = moment(ends.get(run["id"]) or (run["stages"][-1]["ended_at"] if run["stages"] else run["created_at"]))
            summary = f"Version {run['version']} is registered" if state == "registered" else f"Run {plain(state)}"
            yield Event(max(at, ended), summary, run["reason"], "", link, state, _RUNS[state])


def _of_triggers(fired: Sequence[Json], causes: set[str]) -> Iterable[Event]:
    for transition in fired:
        at = moment(transition["at"])
        if transition["target"] == "retraining" and transition["source"] != "retraining" and transition["reason"] not in causes:
            yield Event(at, "A trigger fires", transition["reason"], transition["actor"], tone="busy")
        elif transition["source"] == transition["target"]:
            yield Event(at, f"Retrainer is {plain(transition['target'])}", transition["reason"], transition["actor"], tone="")


def _of_specs(place: str, specs: Sequence[Json]) -> Iterable[Event]:
    for spec in specs:
        number = spec["generation"]
        link = f"{place}/spec?from={number - 1}&to={number}" if number > 1 else f"{place}/spec"
        summary = f"Spec {number} is applied" if number > 1 else "The first spec is applied"
        yield Event(moment(spec["at"]), summary, "", spec["actor"], link, tone="")


def lettered(events: Sequence[Event], since: datetime, until: datetime) -> list[Event]:
    """Gives letters to the events with a tone in the time span, the oldest first; with too few letters, the newest events get them."""
    marked = [event for event in events if event.tone and since <= event.at <= until][: len(string.ascii_uppercase)]
    letters = {id(event): letter for event, letter in zip(reversed(marked), string.ascii_uppercase, strict=False)}
    return [replace(event, letter=letters.get(id(event), "")) for event in events]


def marks(events: Sequence[Event]) -> list[EventMark]:
    return [
        EventMark(event.at.timestamp(), f"{event.letter}: {event.summary}", event.tone, event.letter)
        for event in reversed(events)
        if event.letter
    ]


def canaries(served: Sequence[Json], since: datetime, until: datetime) -> list[ShadedPeriod]:
    """Periods in which two versions served."""
    stretches = []
    for route in served:
        begins, ends = moment(route["since"]), moment(route["until"]) or until
        if route["candidate"] is not None and begins is not None and begins < until and ends > since:
            stretches.append(ShadedPeriod(max(begins, since).timestamp(), min(ends, until).timestamp()))
    return stretches
