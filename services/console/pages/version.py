"""Version page: lineage, metrics, rollouts, serving history and tags."""

from __future__ import annotations

from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response

from services.console.api import Api, Json, at
from services.console.page import Pages
from services.console.render import PageFault, fault, onwards, page
from services.console.session import SubmittedForm
from services.console.specs import full_text
from shared.domain.errors import EyasError
from shared.domain.naming import check_tag

pages = Pages()

_LOOKED = 50
_UNDER_WAY = ("pending", "loading", "shadow", "canary", "paused")
_SERVED = {
    "latency_p50": "median latency, ms",
    "latency_p99": "latency of 99 % of the answers, ms",
    "throughput": "rows a second",
    "size": "size, MiB",
    "memory": "memory of the model, MiB",
    "memory_server": "memory of the server, MiB",
    "parity": "largest difference between training and serving",
}


@pages.page("/recommenders/{name}/versions/{version}")
async def version(request: Request, api: Api) -> Response:
    name, number = request.path_params["name"], request.path_params["version"]
    version = await api.get(at("recommenders", name, "versions", number))
    run, card, rollouts, served, recommender, active = await api.all(
        api.maybe(at("runs", version["run"])),
        api.maybe(at("recommenders", name, "versions", version["version"], "card")),
        api.get(at("recommenders", name, "rollouts"), limit=_LOOKED),
        api.get(at("recommenders", name, "history"), limit=_LOOKED),
        api.get(at("recommenders", name)),
        api.get(at("recommenders", name, "rollouts"), state=_UNDER_WAY),
    )
    metrics = _metrics(card, version)
    ahead = sorted(active["items"], key=lambda rollout: (rollout["created_at"], rollout["id"]))
    return page(
        request,
        "version.html",
        every=15,
        name=name,
        place=f"/recommenders/{quote(name, safe='')}",
        version=version,
        number=version["version"],
        run=run,
        card=card,
        about=full_text(card["about"]["model"]) if card and card["about"] else "",
        metrics=[row for row in metrics if "{" not in row["name"]],
        sliced=[row for row in metrics if "{" in row["name"]],
        compared=any(row["serving"] is not None for row in metrics),
        measured=[(_SERVED.get(metric, metric), value) for metric, value in sorted(card["serving"].items())] if card else [],
        files=sorted((file, file_info["size"], file_info["sha256"]) for file, file_info in version["files"].items()),
        rollouts=[rollout for rollout in rollouts["items"] if rollout["version"] == version["version"]],
        rolls_out=_may_roll_out(version, recommender["serving"], ahead),
        serves_nothing=recommender["serving"] is None,
        ahead=ahead,
        served=[route for route in served["items"] if version["version"] in (route["stable"], route["candidate"])],
    )


def _may_roll_out(version: Json, serving: Json | None, ahead: list[Json]) -> bool:
    """Hides the button if the API would reject the rollout."""
    eligible = version["collected_at"] is None and all(rollout["version"] != version["version"] for rollout in ahead)
    if serving is None:
        return eligible and (bool(ahead) or version["metrics"].get("parity") is not None)
    return eligible and bool(serving["stable"] != version["version"])


@pages.action("/recommenders/{name}/versions/{version}/rollout")
async def roll_out(request: Request, api: Api, form: SubmittedForm) -> Response:
    name, number = request.path_params["name"], request.path_params["version"]
    if not (number.isascii() and number.isdecimal() and len(number) <= 10):
        return fault(request, PageFault(422, "Not valid", "Expected the version's number."))
    made = await api.post(at("recommenders", name, "rollouts"), {"version": int(number), "reason": form["reason"]}, form["once"])
    return onwards(f"/rollouts/{quote(made['id'], safe='')}", f"The rollout of version {number} is created.")


@pages.action("/recommenders/{name}/versions/{version}/tag")
async def tag(request: Request, api: Api, form: SubmittedForm) -> Response:
    return await _tagged(request, api, form, "PUT")


@pages.action("/recommenders/{name}/versions/{version}/untag")
async def untag(request: Request, api: Api, form: SubmittedForm) -> Response:
    return await _tagged(request, api, form, "DELETE")


async def _tagged(request: Request, api: Api, form: SubmittedForm, method: str) -> Response:
    name, number, word = request.path_params["name"], request.path_params["version"], form["tag"]
    try:
        check_tag(word)
    except EyasError as error:
        return fault(request, PageFault(422, "Not valid", str(error)))
    await api.ask(method, at("recommenders", name, "versions", number, "tags", word), {})
    done = f"has the tag {word} now" if method == "PUT" else f"no longer has the tag {word}"
    return onwards(f"/recommenders/{quote(name, safe='')}/versions/{quote(number, safe='')}", f"Version {number} {done}.")


def _metrics(card: Json | None, version: Json) -> list[Json]:
    if card is None:
        rows = [
            (name.removeprefix("candidate."), {"candidate": value}) for name, value in version["metrics"].items() if "candidate." in name
        ]
    else:
        rows = list(card["metrics"].items())
    return [
        {"name": name, "candidate": values.get("candidate"), "baseline": values.get("popularity"), "serving": values.get("serving")}
        for name, values in sorted(rows, key=lambda row: row[0])
    ]
