"""What happened to a recommender, out of several histories: one line each, the newest first, the marked ones with a letter."""

from __future__ import annotations

import string
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import zip_longest
from typing import Any

from services.console.charts import Mark, Stretch
from services.console.words import moment, plain, share
from shared.domain.segments import way

Json = dict[str, Any]

_RUNS = {"registered": "", "rejected": "bad", "failed": "bad", "cancelled": "plain"}
_ROLLOUTS = {"promoted": "good", "rolled_back": "bad", "aborted": "plain"}


@dataclass(frozen=True)
class Event:
    at: datetime
    what: str
    reason: str
    actor: str
    link: str | None = None
    state: str = ""
    """Of what is linked, where it has one."""
    tone: str = "plain"
    letter: str = ""

    @property
    def when(self) -> str:
        """What many lines of the same age are told apart by."""
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
    """`place` is the recommender's own address. The lists are as the API gives them: the newest first. `ends`: by run, where known."""
    found = [
        *_of_routes(place, served, rollouts),
        *_of_runs(runs, ends),
        *_of_triggers(fired, {one["cause"] for one in runs}),
        *_of_specs(place, specs),
    ]
    return sorted(found, key=lambda one: one.at, reverse=True)


def _of_routes(place: str, served: Sequence[Json], rollouts: Sequence[Json]) -> Iterable[Event]:
    ended = {one["id"]: one for one in rollouts if one["state"] in _ROLLOUTS}
    by_hand = {one["id"]: one for one in rollouts if one["asked_by"] is not None}
    told = set()
    for one, before in zip_longest(served, served[1:]):
        at = moment(one["since"])
        if at is None:
            continue
        rollout = one["rollout"] or (before or {}).get("rollout")
        link = way("rollouts", rollout) if rollout else None
        version = f"{place}/versions/{one['stable']}"
        if before is None or before.get("until") != one["since"]:
            if one["generation"] == 1 or before is not None:  # else it is only the oldest one that was read
                yield Event(
                    at, f"Version {one['stable']} serves everybody, the first one", one["reason"], one["actor"], version, tone="good"
                )
        elif one["rollout"] and one["rollout"] != before["rollout"]:
            where = "in shadow" if one["shadow"] else f"at {share(one['weight'])}"
            begun = by_hand.get(one["rollout"], {"asked_by": one["actor"], "cause": ""})
            why = "; ".join(said for said in (begun["cause"], one["reason"]) if said)
            yield Event(at, f"Rollout of version {one['candidate']} begins, {where}", why, begun["asked_by"], link, tone="busy")
        elif one["rollout"]:
            what = f"Version {one['candidate']} gets {share(one['weight'])} of the users"
            yield Event(at, what, one["reason"], one["actor"], link, tone="")
        elif before["candidate"] is not None and one["stable"] == before["candidate"]:
            told.add(rollout)
            yield Event(at, f"Version {one['stable']} serves everybody", one["reason"], one["actor"], link, "promoted", "good")
        elif before["candidate"] is not None and one["stable"] == before["stable"]:
            told.add(rollout)
            state = ended.get(rollout, {}).get("state", "rolled_back")
            what = f"Version {before['candidate']} is taken back, version {one['stable']} serves everybody"
            yield Event(at, what, one["reason"], one["actor"], link, state, _ROLLOUTS.get(state, "plain"))
        elif one["stable"] != before["stable"]:
            what = f"Version {one['stable']} serves everybody instead of version {before['stable']}"
            yield Event(at, what, one["reason"], one["actor"], version, tone="bad")
    known = {one["rollout"] for one in served}
    for id, one in ended.items():
        at = moment(one["since"])
        if id not in known | told and at is not None and one["state"] != "promoted":  # it ended before any user saw it
            what = f"Rollout of version {one['version']} ended before it began"
            yield Event(at, what, one["reason"], "", way("rollouts", id), one["state"], _ROLLOUTS[one["state"]])


def _of_runs(runs: Sequence[Json], ends: Mapping[str, str]) -> Iterable[Event]:
    for one in runs:
        at, by, state = moment(one["created_at"]), one["asked_by"] or "", one["state"]
        link = way("runs", one["id"])
        what = "Retraining begins" if by == "eyas" else "Run begins"
        yield Event(at, f"{what} ({plain(one['mode'])})", one["cause"], by, link, "", "busy")
        if state in _RUNS:
            ended = moment(ends.get(one["id"]) or (one["stages"][-1]["ended_at"] if one["stages"] else one["created_at"]))
            what = f"Version {one['version']} is registered" if state == "registered" else f"Run is {plain(state)}"
            yield Event(max(at, ended), what, one["reason"], "", link, state, _RUNS[state])


def _of_triggers(fired: Sequence[Json], causes: set[str]) -> Iterable[Event]:
    for one in fired:
        at = moment(one["at"])
        if one["target"] == "retraining" and one["source"] != "retraining" and one["reason"] not in causes:
            yield Event(at, "A trigger fires", one["reason"], one["actor"], tone="busy")
        elif one["source"] == one["target"]:
            yield Event(at, f"Retraining is {plain(one['target'])}", one["reason"], one["actor"], tone="")


def _of_specs(place: str, specs: Sequence[Json]) -> Iterable[Event]:
    for one in specs:
        number = one["generation"]
        link = f"{place}/spec?from={number - 1}&to={number}" if number > 1 else f"{place}/spec"
        what = f"Spec {number} is applied" if number > 1 else "The first spec is applied"
        yield Event(moment(one["at"]), what, "", one["actor"], link, tone="")


def lettered(events: Sequence[Event], since: datetime, until: datetime) -> list[Event]:
    """Those with a tone that lie in the picture, from the oldest on; where there are more than letters, the newest ones."""
    marked = [one for one in events if one.tone and since <= one.at <= until][: len(string.ascii_uppercase)]
    letters = {id(one): letter for one, letter in zip(reversed(marked), string.ascii_uppercase, strict=False)}
    return [replace(one, letter=letters.get(id(one), "")) for one in events]


def marks(events: Sequence[Event]) -> list[Mark]:
    return [Mark(one.at.timestamp(), f"{one.letter}: {one.what}", one.tone, one.letter) for one in reversed(events) if one.letter]


def canaries(served: Sequence[Json], since: datetime, until: datetime) -> list[Stretch]:
    """When two versions answered."""
    found = []
    for one in served:
        begins, ends = moment(one["since"]), moment(one["until"]) or until
        if one["candidate"] is not None and begins is not None and begins < until and ends > since:
            found.append(Stretch(max(begins, since).timestamp(), min(ends, until).timestamp()))
    return found
