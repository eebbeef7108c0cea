"""The same recommender with integer and with text ids, from data to answers, events, filters, similar items, batch and command line; and an
integer recommender moved to text ids."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from tests.servers.platform_process import PlatformProcess, until
from tests.support.platform_world import quick_spec, write_world

pytestmark = [pytest.mark.requirement("C-01"), pytest.mark.timeout(600)]

KINDS = ("integer", "text")


def user_id(number: int) -> str:
    return f"user {number} <{number}@example.org>"


def item_id(number: int) -> str:
    return f"sku/{number:05}-é"


def texts(frame: pl.DataFrame) -> pl.DataFrame:
    makers = {"userId": user_id, "movieId": item_id}
    return frame.with_columns(pl.col(name).map_elements(make, pl.String) for name, make in makers.items() if name in frame.columns)


def write_data(folder: Path) -> pl.DataFrame:
    """Writes the data of both kinds; returns the items of the integers, with prices."""
    write_world(folder)
    ratings = pl.read_parquet(folder / "ratings.parquet")
    movies = pl.read_parquet(folder / "movies.parquet").with_columns(price=pl.int_range(pl.len()) * 2)
    for kind in KINDS:
        (folder / kind).mkdir()
        for name, frame in (("ratings", ratings), ("movies", movies)):
            (frame if kind == "integer" else texts(frame)).write_parquet(folder / kind / f"{name}.parquet")
    return movies


def spec(folder: Path, kind: str, **serve: Any) -> dict[str, Any]:
    serve = {"batch": {"k": 5}, "retrieve": {"candidates": 60}, **serve}
    return quick_spec(folder / kind, name=kind, serve=serve, split={"refit": False})


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[PlatformProcess, Path, pl.DataFrame]]:
    folder = tmp_path_factory.mktemp("text-ids")
    movies = write_data(folder / "data")
    with PlatformProcess(folder / "home", folder / "data") as platform:
        for kind in KINDS:
            serve(platform, spec(folder / "data", kind, filter=["price < 100"]))
        yield platform, folder, movies


def serve(platform: PlatformProcess, document: dict[str, Any]) -> dict[str, Any]:
    """Applies a spec; returns its run when its version serves."""
    run: dict[str, Any] = platform.wait_for_run(platform.post("/v1/recommenders", document)["run"], "registered")
    platform.wait_for_rollout(run["rollout"], "promoted")
    name = document["name"]
    user: Any = platform.get(f"/v1/recommenders/{name}")["ids"]["user"] == "text" and user_id(1)
    until(f"{name} answers", lambda: platform.model_answer(name, run["version"], user or 1))
    return run


def items(answer: dict[str, Any]) -> list[Any]:
    return [item["item"] for item in answer["items"]]


def eyas(platform: PlatformProcess, *words: str) -> str:
    url, token = str(platform.client.base_url), str(platform.home / "token")
    command = [sys.executable, "-m", "services.cli.main", "--url", url, "--token-file", token, *words]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_both_kinds_give_the_same_recommendations(world: tuple[PlatformProcess, Path, pl.DataFrame]) -> None:
    platform, _, movies = world
    assert [platform.get(f"/v1/recommenders/{kind}")["ids"] for kind in KINDS] == [{"user": kind, "item": kind} for kind in KINDS]
    runs = [platform.get(f"/v1/recommenders/{kind}/versions/1")["metrics"] for kind in KINDS]
    names = [name for name in runs[0] if name.startswith("candidate.") and "seconds" not in name]
    assert {name: runs[1][name] for name in names} == pytest.approx({name: runs[0][name] for name in names}, abs=0.02)
    cheap = set(movies.filter(pl.col("price") < 100)["movieId"])
    for user in range(1, 30):
        numbers = platform.post("/v1/recommend/integer", {"user": user, "k": 20}, trial="true")
        texts_answer = platform.post("/v1/recommend/text", {"user": user_id(user), "k": 20}, trial="true")
        assert (numbers["fallback"], texts_answer["fallback"]) == (None, None)
        scores = [{item["item"]: item["score"] for item in answer["items"]} for answer in (numbers, texts_answer)]
        assert scores[1] == pytest.approx({item_id(item): score for item, score in scores[0].items()}, abs=1e-4)
        assert scores[0].keys() <= cheap, "a column of the items table filters without a write to the catalogue"
    tables = [pl.read_parquet(next((platform.home / "artifacts" / "recommendations" / kind).glob("*.parquet"))) for kind in KINDS]
    assert tables[1].schema == {"user": pl.String, "place": pl.Int32, "item": pl.String, "score": pl.Float32}
    batches = [{(user, item) for user, _, item, _ in table.iter_rows()} for table in tables]
    wanted = {(user_id(user), item_id(item)) for user, item in batches[0]}
    assert len(batches[1] & wanted) > 0.95 * len(wanted), "equal up to ties"


def test_requests_events_and_the_command_line_have_the_ids_of_the_data(world: tuple[PlatformProcess, Path, pl.DataFrame]) -> None:
    platform, folder, _ = world
    answer = platform.post("/v1/recommend/text", {"user": user_id(7), "k": 3})
    first, second, _ = items(answer)
    event = {"recommender": "text", "user": user_id(7), "item": first, "value": 5, "request_id": answer["request_id"]}
    assert platform.post("/v1/events", {"events": [event]})["hits"] == 1
    platform.post("/v1/recommenders", spec(folder / "data", "text", filter=[{"not_seen": "ever"}, "price < 100"]), run="false")
    until(
        "the liked item is not shown", lambda: first not in items(platform.post("/v1/recommend/text", {"user": user_id(7)}, trial="true"))
    )
    left = items(platform.post("/v1/recommend/text", {"user": user_id(7), "exclude": [second]}, trial="true"))
    assert second not in left and left
    near = platform.post("/v1/similar/text", {"item": first, "k": 3})
    assert len(items(near)) == 3 and all(item.startswith("sku/") for item in items(near))
    for body, field in (({"user": 7}, "user"), ({"user": user_id(7), "exclude": [7]}, "exclude.0")):
        refused = platform.client.post("/v1/recommend/text", json=body)
        assert refused.status_code == 422 and refused.json()["detail"].startswith(f"{field}: 7 is an integer, but")
    refused = platform.client.post("/v1/recommend/integer", json={"user": "7"})
    assert refused.json()["detail"] == "user: '7' is text, but users of this recommender have integer ids; send an integer"

    assert json.loads(eyas(platform, "recommend", "text", user_id(7), "--json"))["fallback"] is None
    assert json.loads(eyas(platform, "recommend", "integer", "7", "--json"))["fallback"] is None
    assert items(json.loads(eyas(platform, "similar", "text", first, "-k", "3", "--json"))) == items(near)
    lines = folder / "items.jsonl"
    lines.write_text(json.dumps({"item": first, "attributes": {"price": 1000}}, ensure_ascii=False) + "\n")
    eyas(platform, "items", "put", "text", str(lines), "--partial")
    assert json.loads(eyas(platform, "items", "get", "text", first, "--json"))["attributes"]["price"] == 1000
    page = platform.client.get("/recommenders/text/try", params={"user": user_id(8)}, headers={"Accept": "text/html"})
    assert page.status_code in (200, 303)


def test_an_integer_recommender_is_moved_to_text_ids_with_its_events(world: tuple[PlatformProcess, Path, pl.DataFrame]) -> None:
    platform, folder, _ = world
    clicks = [{"recommender": "integer", "user": user, "item": 1 + user, "kind": "click"} for user in range(1, 600)]
    platform.post("/v1/events", {"events": clicks})
    exported = folder / "events.jsonl"
    assert f"{len(clicks)} events written" in eyas(platform, "export-events", "integer", str(exported))
    events = [json.loads(line) for line in exported.read_text(encoding="utf-8").splitlines()]
    moved = folder / "moved.jsonl"
    with moved.open("w", encoding="utf-8") as lines:
        for event in events:
            event |= {"recommender": "moved", "user": user_id(event["user"]), "item": item_id(event["item"])}
            lines.write(json.dumps(event, ensure_ascii=False) + "\n")
    document = spec(folder / "data", "text") | {"name": "moved"}
    document["data"]["interactions"]["also"] = "events"
    platform.post("/v1/recommenders", document, run="false")
    assert f"{len(clicks)} events accepted" in eyas(platform, "events", "moved", str(moved))
    assert f"{len(clicks)} of them duplicates" in eyas(platform, "events", "moved", str(moved)), "sent again, each counts once"
    run = platform.wait_for_run(platform.post("/v1/recommenders/moved/runs")["id"], "registered")
    facts = platform.get(f"/v1/runs/{run['id']}")["metrics"]
    assert platform.get("/v1/recommenders/moved")["ids"] == {"user": "text", "item": "text"}
    assert facts["etl.stage_seconds"] > 0
    assert "events=599" in platform.get(f"/v1/runs/{run['id']}/logs", stage="etl")["text"]


def test_an_unknown_attribute_is_refused_with_the_nearest_name(world: tuple[PlatformProcess, Path, pl.DataFrame]) -> None:
    platform, folder, _ = world
    for path in ("/v1/recommenders", "/v1/recommenders:validate"):
        refused = platform.client.post(path, json=spec(folder / "data", "text", filter=["prise < 10"]))
        assert refused.status_code == 422
        assert "unknown attribute 'prise': did you mean 'price'?" in refused.json()["detail"]
