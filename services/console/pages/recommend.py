"""Trial requests: a user's recommendations with the work of each stage, and similar items. They do not count in statistics."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from services.console.api import Api, ApiProblem, Json, at
from services.console.page import Pages
from services.console.render import page
from shared.domain.entity_ids import Id, IdKind, read_id
from shared.domain.errors import Invalid

pages = Pages()

_K = 10
_ROWS = 25
"""Number of items whose attributes are shown."""
_TITLES, _PICTURES = ("title", "name"), ("image", "picture")
"""Names of the attributes."""
_PICTURE = re.compile(r"https://([a-z0-9.-]+)/[!#-\[\]-~]*")


class _InvalidField(Exception):
    """Invalid field of the form, with a message for the user."""


@pages.page("/recommenders/{name}/try")
async def attempt(request: Request, api: Api) -> Response:
    name, query = request.path_params["name"], request.query_params
    recommender = await api.get(at("recommenders", name))
    may, kinds = request.state.who.may("operator"), recommender["ids"]
    context: dict[str, Any] = {"answer": None, "similar": None, "items": {}, "asked_item": None, "wrong": "", "errors": ()}
    hosts = request.state.image_hosts
    try:
        if may and query.get("user", "").strip():
            context["answer"] = await api.answer(at("recommend", name), _ask(query, kinds), explain="true", trial="true")
            context["items"] = await _items(api, name, [item["item"] for item in context["answer"]["items"]], hosts)
        elif may and query.get("item", "").strip():
            body = _ask_similar(query, kinds)
            context["similar"] = await api.answer(at("similar", name), body)
            context["items"] = await _items(api, name, [body["item"], *(item["item"] for item in context["similar"]["items"])], hosts)
            context["asked_item"] = context["items"].get(body["item"])
    except _InvalidField as error:
        context["wrong"] = str(error)
    except ApiProblem as refused:
        if refused.status == 401:
            raise
        context["wrong"], context["errors"] = refused.detail, refused.errors
    reached = api.online is not None
    return page(
        request,
        "try.html",
        name=name,
        serving=recommender["serving"],
        filters=recommender["spec"].get("serve", {}).get("filter", []),
        may=may,
        reached=reached,
        form_values={field: query.get(field, "") for field in ("user", "k", "exclude", "context", "items", "item", "count")},
        stages=_stages(context["answer"]),
        **context,
    )


def _ask(query: Any, kinds: Json) -> Json:
    body: Json = {"user": _id("user", query["user"], kinds["user"]), "k": _number("number of items", query.get("k") or str(_K))}
    if query.get("exclude", "").strip():
        body["exclude"] = _ids("exclude items", query["exclude"], kinds["item"])
    if query.get("items", "").strip():
        body["items"] = _ids("just viewed items", query["items"], kinds["item"])
    if query.get("context", "").strip():
        body["context"] = _context(query["context"])
    return body


def _ask_similar(query: Any, kinds: Json) -> Json:
    return {"item": _id("item", query["item"], kinds["item"]), "k": _number("number of items", query.get("count") or str(_K))}


def _number(field: str, text: str) -> int:
    try:
        return int(text.strip())
    except ValueError:
        raise _InvalidField(f"{field}: expected a whole number, got {text.strip()[:40]!r}") from None


def _id(field: str, text: str, kind: IdKind | None) -> Id:
    try:
        return read_id(text.strip(), kind)
    except Invalid as error:
        raise _InvalidField(f"{field}: {error}") from None


def _ids(field: str, text: str, kind: IdKind | None) -> list[Id]:
    """Reads ids that are separated by commas."""
    return [_id(field, part, kind) for part in text.split(",") if part.strip()]


def _context(text: str) -> Json:
    try:
        context = json.loads(text)
    except (ValueError, RecursionError):
        context = None
    if not isinstance(context, dict):
        raise _InvalidField('facts about the user: expected a JSON object, such as {"age": 30, "region": "AT"}')
    return context


async def _items(api: Api, name: str, ids: Sequence[Id], image_hosts: Collection[str]) -> dict[Id, Json]:
    """The first items, without items that the catalogue lacks."""
    catalogue_items = await api.all(*(api.maybe(at("items", name, id)) for id in ids[:_ROWS]))
    return {id: _described(item, image_hosts) for id, item in zip(ids, catalogue_items, strict=False) if item is not None}


def _described(item: Json, image_hosts: Collection[str]) -> Json:
    """Title and picture of an item apart from its other attributes."""
    attributes = dict(item["attributes"])
    title = next((name for name in _TITLES if isinstance(attributes.get(name), str) and attributes[name].strip()), "")
    picture = next((name for name in _PICTURES if _is_shown(attributes.get(name), image_hosts)), "")
    return {
        "title": attributes.pop(title, ""),
        "picture": attributes.pop(picture, ""),
        "attributes": attributes,
        "available": item["available"],
    }


def _is_shown(address: Any, image_hosts: Collection[str]) -> bool:
    """Allows only https on its own port at a listed host, without a user, and no character that browsers read in another way."""
    match = _PICTURE.fullmatch(address) if isinstance(address, str) else None
    return match is not None and match[1] in image_hosts


def _stages(answer: Json | None) -> list[tuple[str, str, str, float | None]]:
    """The four stages of an answer with their results and times."""
    if answer is None or "explain" not in answer:
        return []
    explanation, times = answer["explain"], answer["explain"]["milliseconds"]

    def took(*stages: str) -> float | None:
        durations = [times[stage] for stage in stages if stage in times]
        return sum(durations) if durations else None

    dropped = "; ".join(f"{count:,} by {why}" for why, count in explanation["dropped"].items())
    left = explanation["retrieved"] - explanation["filtered"]
    explored = [f"place {explanation['explored']} was drawn at random"] if explanation["explored"] else []
    rules = [f"rules apply to {sum(bool(reasons) for reasons in explanation['rules'])} items"] if any(explanation["rules"]) else []
    return [
        (
            "Retrieve",
            f"{explanation['retrieved']:,} candidates",
            answer["fallback"] or ("nearest items to the user" if "retrieve" in times else "the whole catalogue"),
            took("retrieve", "seen"),
        ),
        ("Filter", f"{left:,} left", f"{explanation['filtered']:,} dropped{': ' + dropped if dropped else ''}", took("filter")),
        ("Score", "by the model" if explanation["scored"] else "not by the model", answer["fallback"] or "", took("score", "features")),
        ("Order", f"{len(answer['items'])} shown", "; ".join([*rules, *explored]) or "by score, best first", took("order")),
    ]
