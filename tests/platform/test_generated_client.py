"""A client that is generated from docs/openapi.json alone, used on a running platform."""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.servers.platform_process import PlatformProcess
from tests.support.platform_world import quick_spec

ROOT = Path(__file__).parents[2]
PACKAGE = "generated_eyas_client"
ONLY_YAML = "Unsupported content type application/yaml"
ONLY_LINES = "Unsupported content type application/x-ndjson"
"""All that the generator leaves out: specs as YAML, events and items as lines: of these it writes the JSON side."""
LINES = {"POST /v1/events", "PUT /v1/items/{name}", "POST /v1/items/{name}"}
SPECS = {"POST /v1/recommenders", "PUT /v1/recommenders/{name}", "POST /v1/recommenders:validate", "POST /v1/recommenders:plan"}


class Generated:
    """Modules of the generated package, by their path in it."""

    def __init__(self, said: str) -> None:
        self.said = said
        self.opened: list[Any] = []

    def __getitem__(self, path: str) -> ModuleType:
        return importlib.import_module(f"{PACKAGE}.{path}")

    def client(self, platform: PlatformProcess, token: str | None) -> Any:
        base = str(platform.client.base_url).rstrip("/")
        kind, with_token = ("Client", {}) if token is None else ("AuthenticatedClient", {"token": token})
        made = getattr(self["client"], kind)(base_url=base, **with_token)
        self.opened.append(made.get_httpx_client())
        return made

    def close(self) -> None:
        for one in self.opened:
            one.close()


@pytest.fixture(scope="module")
def generated(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("client")
    (folder / "config.yaml").write_text("post_hooks: []\n")
    command = [str(Path(sys.executable).parent / "openapi-python-client"), "generate", "--meta", "none", "--config", "config.yaml"]
    result = subprocess.run(
        [*command, "--path", str(ROOT / "docs/openapi.json"), "--output-path", PACKAGE],
        cwd=folder,
        env={**os.environ, "COLUMNS": "200", "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    sys.path.insert(0, str(folder))
    made = Generated(result.stdout + result.stderr)
    yield made
    made.close()
    sys.path.remove(str(folder))
    for name in [name for name in sys.modules if name.split(".")[0] == PACKAGE]:
        del sys.modules[name]


@pytest.fixture
def owner(generated: Generated, platform: PlatformProcess) -> Any:
    return generated.client(platform, (platform.home / "token").read_text().strip())


@pytest.fixture
def films(generated: Generated, platform: PlatformProcess, owner: Any) -> str:
    body = generated["models"].RecommenderSpec.from_dict(quick_spec(platform.data, name="films"))
    made = generated["api.recommenders.apply_recommender"].sync_detailed(client=owner, body=body, run=False)
    assert made.status_code in (200, 201), made.content
    assert made.parsed.generation == 1
    assert made.parsed.run is None
    return str(made.parsed.name)


def every(list_: ModuleType, most: int = 50, **rest: Any) -> list[Any]:
    """All of a list, a row a page."""
    found: list[Any] = []
    cursor = None
    for _ in range(most):
        page = list_.sync(limit=1, **({"cursor": cursor} if cursor else {}), **rest)
        assert len(page.items) <= 1
        found += page.items
        cursor = page.next_
        if not cursor:
            return found
    raise AssertionError(f"the list has no end after {most} pages")


@pytest.mark.requirement("C-01")
def test_the_generator_skips_no_operation(generated: Generated) -> None:
    said = re.findall(r"WARNING parsing (\S+ \S+) within \w+\.\s+(\S[^\n]*)", generated.said)
    skipped = {(route, ONLY_YAML) for route in SPECS} | {(route, ONLY_LINES) for route in LINES}
    assert {(route, why.strip()) for route, why in said} == skipped, generated.said
    assert generated.said.count("WARNING") == len(said)
    assert "ERROR" not in generated.said


@pytest.mark.requirement("C-01")
def test_a_recommender_is_made_and_read_back(generated: Generated, platform: PlatformProcess, owner: Any, films: str) -> None:
    found = generated["api.recommenders.get_recommender"].sync(films, client=owner)
    assert found.name == films
    assert found.serving is None
    assert found.spec["schema"]["user"] == "userId"
    names = [one["name"] for one in platform.get("/v1/recommenders")["items"]]
    assert films in names
    assert [one.name for one in every(generated["api.recommenders.list_recommenders"], client=owner)] == names


@pytest.mark.requirement("C-01")
def test_items_are_put_paged_through_and_deleted(generated: Generated, owner: Any, films: str) -> None:
    models, api = generated["models"], "api.items."
    some = {"items": [{"item": item, "attributes": {"age": 12, "genres": ["a"]}, "available": item > -1} for item in (-1, 2, 3)]}
    written = generated[f"{api}put_items"].sync(films, client=owner, body=models.ItemWrites.from_dict(some))
    assert (written.accepted, written.changed) == (3, 3)
    found = every(generated[f"{api}list_items"], name=films, client=owner)
    assert [(one.item, one.available) for one in found] == [(-1, False), (2, True), (3, True)]
    assert found[0].attributes.additional_properties == {"age": 12, "genres": ["a"]}
    gone = generated[f"{api}delete_items"].sync(films, client=owner, body=models.Deletions(items=[2, 99]))
    assert gone.deleted == 1
    assert generated[f"{api}get_item"].sync_detailed(films, 2, client=owner).status_code == 404


@pytest.mark.requirement("C-01")
def test_runs_are_started_paged_through_and_cancelled(generated: Generated, owner: Any, films: str) -> None:
    models, create = generated["models"], generated["api.runs.create_run"]
    started = [create.sync(films, client=owner, body=models.Start(reason=f"number {number}")) for number in range(3)]
    assert [one.cause for one in started] == ["number 0", "number 1", "number 2"]
    seen = every(generated["api.runs.list_runs"], client=owner, recommender=films)
    assert {one.id for one in started} <= {one.id for one in seen}
    assert len({one.id for one in seen}) == len(seen)
    for one in started[::-1]:
        asked = generated["api.runs.cancel_run"].sync_detailed(one.id, client=owner, body=models.Why(reason="enough seen"))
        assert asked.status_code == 202, asked.content
        assert asked.parsed.asked == "cancel"
    events = every(generated["api.runs.list_run_events"], id=started[0].id, client=owner)
    assert events[0].target == "pending"


@pytest.mark.requirement("C-01")
def test_problems_are_read_as_problems(generated: Generated, owner: Any, films: str, platform: PlatformProcess) -> None:
    problem = generated["models"].Problem
    missing = generated["api.recommenders.get_recommender"].sync_detailed("nobody", client=owner)
    assert (missing.status_code, type(missing.parsed)) == (404, problem)
    assert missing.parsed.detail == "no recommender is called 'nobody'"
    bad = generated["api.runs.create_run"].sync_detailed(films, client=owner, body=generated["models"].Start(priority=10**6))
    assert (bad.status_code, type(bad.parsed)) == (422, problem)
    assert [one.field for one in bad.parsed.errors] == ["priority"]
    warm = generated["api.plans.plan_run"].sync_detailed(
        films, client=owner, body=generated["models"].PlanRequest.from_dict({"mode": "warm"})
    )
    assert (warm.status_code, type(warm.parsed)) == (409, problem)
    stranger = generated["api.access.whoami"].sync_detailed(client=generated.client(platform, "wrong"))
    assert (stranger.status_code, type(stranger.parsed)) == (401, problem)
    assert generated["api.health.readyz"].sync(client=generated.client(platform, None)).ready


MAY = {
    "client": {"read": 403, "write": 403, "rule": 403},
    "viewer": {"read": 200, "write": 403, "rule": 403},
    "operator": {"read": 200, "write": 202, "rule": 403},
    "admin": {"read": 200, "write": 202, "rule": 200},
}


@pytest.mark.requirement("C-01")
def test_a_token_of_each_role_may_what_it_may(
    generated: Generated, platform: PlatformProcess, owner: Any, films: str, subtests: pytest.Subtests
) -> None:
    for role in MAY:
        with subtests.test(msg=role):
            check_role(generated, platform, owner, films, role)


def check_role(generated: Generated, platform: PlatformProcess, owner: Any, films: str, role: str) -> None:
    new = generated["models"].NewToken.from_dict({"name": f"a-{role}", "role": role, "recommenders": [films], "expires_in": "1h"})
    made = generated["api.access.create_token"].sync(client=owner, body=new)
    holder = generated.client(platform, made.token)
    me = generated["api.access.whoami"].sync(client=holder)
    assert (me.name, me.role, me.recommenders) == (f"a-{role}", role, [films])
    read = generated["api.runs.list_runs"].sync_detailed(client=holder)
    write = generated["api.runs.create_run"].sync_detailed(films, client=holder, body=generated["models"].Start())
    rule = generated["api.access.list_tokens"].sync_detailed(client=holder)
    assert {"read": read.status_code, "write": write.status_code, "rule": rule.status_code} == MAY[role]
    if write.status_code == 202:
        generated["api.runs.cancel_run"].sync_detailed(write.parsed.id, client=owner)
    revoked = generated["api.access.revoke_token"].sync(made.about.id, client=owner)
    assert revoked.revoked_by == "owner"
    assert generated["api.access.whoami"].sync_detailed(client=holder).status_code == 401
