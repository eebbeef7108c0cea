"""Trying a recommender: what a user would be shown, how each stage came to it, and what is like an item. Nothing of it counts."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from services.console.api import Api, Json, Refused, at
from services.console.page import Pages
from services.console.render import page

pages = Pages()

_K = 10
_ROWS = 25
"""Of an answer, whose attributes are shown."""


class _Unreadable(Exception):
    """A field of the form, in words for whoever filled it in."""


@pages.page("/recommenders/{name}/try")
async def attempt(request: Request, api: Api) -> Response:
    name, given = request.path_params["name"], request.query_params
    one = await api.get(at("recommenders", name))
    may = request.state.who.may("operator")
    known: dict[str, Any] = {"answer": None, "similar": None, "attributes": {}, "wrong": "", "errors": ()}
    try:
        if may and given.get("user", "").strip():
            known["answer"] = await api.answer(at("recommend", name), _ask(given), explain="true", trial="true")
            known["attributes"] = await _attributes(api, name, known["answer"]["items"])
        elif may and given.get("item", "").strip():
            known["similar"] = await api.answer(at("similar", name), _ask_similar(given))
            known["attributes"] = await _attributes(api, name, known["similar"]["items"])
    except _Unreadable as error:
        known["wrong"] = str(error)
    except Refused as refused:
        if refused.status == 401:
            raise
        known["wrong"], known["errors"] = refused.detail, refused.errors
    reached = api.online is not None
    return page(
        request,
        "try.html",
        name=name,
        serving=one["serving"],
        filters=one["spec"].get("serve", {}).get("filter", []),
        may=may,
        reached=reached,
        given={field: given.get(field, "") for field in ("user", "k", "exclude", "context", "items", "item", "count")},
        stages=_stages(known["answer"]),
        **known,
    )


def _ask(given: Any) -> Json:
    asked: Json = {"user": _number("user", given["user"]), "k": _number("how many", given.get("k") or str(_K))}
    if given.get("exclude", "").strip():
        asked["exclude"] = _numbers("without", given["exclude"])
    if given.get("items", "").strip():
        asked["items"] = _numbers("looked at just now", given["items"])
    if given.get("context", "").strip():
        asked["context"] = _context(given["context"])
    return asked


def _ask_similar(given: Any) -> Json:
    return {"item": _number("item", given["item"]), "k": _number("how many", given.get("count") or str(_K))}


def _number(field: str, text: str) -> int:
    try:
        return int(text.strip())
    except ValueError:
        raise _Unreadable(f"{field}: a whole number is expected, got {text.strip()[:40]!r}") from None


def _numbers(field: str, text: str) -> list[int]:
    return [_number(field, one) for one in text.replace(",", " ").split()]


def _context(text: str) -> Json:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise _Unreadable('what is known of the user: JSON is expected, such as {"age": 30, "region": "AT"}')
    return found


async def _attributes(api: Api, name: str, items: Sequence[Json]) -> dict[int, Json]:
    """Of the first items; of those that the catalogue doesn't know, nothing."""
    numbers = [one["item"] for one in items[:_ROWS]]
    found = await api.all(*(api.maybe(at("items", name, number)) for number in numbers))
    return {number: one for number, one in zip(numbers, found, strict=True) if one is not None}


def _stages(answer: Json | None) -> list[tuple[str, str, str, float | None]]:
    """The four stages: what each did, with its time."""
    if answer is None or "explain" not in answer:
        return []
    one, times = answer["explain"], answer["explain"]["milliseconds"]

    def took(*stages: str) -> float | None:
        known = [times[stage] for stage in stages if stage in times]
        return sum(known) if known else None

    dropped = "; ".join(f"{count:,} by {why}" for why, count in one["dropped"].items())
    left = one["retrieved"] - one["filtered"]
    explored = [f"place {one['explored']} was given to another by chance"] if one["explored"] else []
    rules = [f"rules concern {sum(bool(said) for said in one['rules'])} of the items shown"] if any(one["rules"]) else []
    return [
        (
            "Retrieve",
            f"{one['retrieved']:,} candidates",
            answer["fallback"] or ("those nearest to the user" if "retrieve" in times else "the whole catalogue"),
            took("retrieve", "seen"),
        ),
        ("Filter", f"{left:,} left", f"{one['filtered']:,} dropped{': ' + dropped if dropped else ''}", took("filter")),
        ("Score", "by the model" if one["scored"] else "not by the model", answer["fallback"] or "", took("score", "features")),
        ("Order", f"{len(answer['items'])} shown", "; ".join([*rules, *explored]) or "by score, best first", took("order")),
    ]
