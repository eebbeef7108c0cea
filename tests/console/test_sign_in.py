"""Sign-in at a real OpenID Connect provider, and sessions, in a real browser."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from playwright.sync_api import expect

from tests.servers.browser import Watched, chromium
from tests.servers.oidc_provider import SECRET, OidcServer, settings
from tests.servers.platform_process import PlatformProcess
from tests.servers.ports import free_port

pytestmark = pytest.mark.requirement("U-12")

GROUPS = {"ada": ["ml"], "bob": ["shop"], "eve": ["sales"]}
ROLES = {"ml": {"role": "admin"}, "shop": {"role": "viewer", "recommenders": ["films"]}}


@pytest.fixture(scope="module")
def signed_in_by(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[PlatformProcess, OidcServer]]:
    chromium()
    folder, port = tmp_path_factory.mktemp("sign-in"), free_port()
    (folder / "data").mkdir()
    url = f"http://127.0.0.1:{port}"
    secret = folder / "client-secret"
    secret.write_text(SECRET)
    secret.chmod(0o600)
    with OidcServer(folder, GROUPS, f"{url}/login/callback") as provider:
        client = {
            "EYAS_OIDC_CLIENT_ID": "console",
            "EYAS_OIDC_CLIENT_SECRET_FILE": str(secret),
            "EYAS_CONSOLE_URL": url,
            "EYAS_OIDC_SCOPES": "openid email groups",
        }
        ports = ("--port", str(port), "--metrics-port", "0")
        with PlatformProcess(folder / "home", folder / "data", ports, settings(provider, ROLES, **client)) as platform:
            yield platform, provider


class Visit(Watched):
    """A visitor who may also see the provider's pages."""

    def __init__(self, chrome: Any, platform: PlatformProcess) -> None:
        super().__init__(chrome.new_context(), str(platform.client.base_url).rstrip("/"))
        self.expected += ["another host was asked: http://localhost:", "fonts.googleapis.com", "401", "403"]
        self.page.route("https://fonts.googleapis.com/**", lambda route: route.fulfill(content_type="text/css", body=""))

    def sign_in_at_provider(self, account: str, path: str = "/") -> None:
        self.go(path)
        self.page.get_by_role("link", name="Sign in at the identity provider").click()
        self.page.locator("input[name=login]").fill(account)
        self.page.locator("input[name=password]").fill("any")
        self.page.get_by_role("button", name="Sign-in").click()
        self.page.get_by_role("button", name="Continue").click()
        self.page.wait_for_url(f"{self.url}/**")

    def cookies(self) -> dict[str, Any]:
        return {cookie["name"]: cookie for cookie in self.context.cookies(self.url)}

    def session(self) -> dict[str, Any]:
        return self.cookies()[f"eyas-session-{self.url.rpartition(':')[2]}"]


@pytest.fixture
def visit(chrome: Any, signed_in_by: tuple[PlatformProcess, OidcServer]) -> Iterator[Visit]:
    visitor = Visit(chrome, signed_in_by[0])
    yield visitor
    visitor.context.close()
    visitor.check()


def test_a_user_signs_in_at_the_provider_and_lands_where_they_went(visit: Visit, signed_in_by: tuple[PlatformProcess, OidcServer]) -> None:
    platform, _ = signed_in_by
    visit.sign_in_at_provider("ada", "/settings")
    assert visit.page.url == f"{visit.url}/settings"
    expect(visit.page.get_by_text("ada@example.org").first).to_be_visible()
    session = visit.session()
    assert session["httpOnly"] and session["sameSite"] == "Lax" and session["value"].startswith("eyas_s")
    assert len(visit.cookies()) == 1, "the cookie of the sign-in is deleted"
    (entry,) = platform.get("/v1/audit", action="POST /v1/sessions", limit=1)["items"]
    assert (entry["actor"], entry["status"]) == ("ada@example.org", 201)
    assert entry["token"].startswith("oidc-")
    secrets = [session["value"], SECRET, "code=", "code_verifier"]
    assert not [secret for secret in secrets if secret in platform.log]


def test_a_viewer_has_a_viewers_rights(visit: Visit) -> None:
    visit.sign_in_at_provider("bob")
    answer = httpx.get(f"{visit.url}/v1/whoami", headers={"Authorization": f"Bearer {visit.session()['value']}"})
    assert (answer.json()["role"], answer.json()["recommenders"]) == ("viewer", ["films"])
    visit.go("/settings")
    expect(visit.page.get_by_text("Only admins can list, create and revoke tokens")).to_be_visible()


def test_a_user_without_a_role_is_told_so_and_gets_no_session(visit: Visit) -> None:
    visit.sign_in_at_provider("eve")
    expect(visit.page.get_by_role("alert")).to_have_text(re.compile("no group of 'eve@example.org' has a role here"))
    assert f"eyas-session-{visit.url.rpartition(':')[2]}" not in visit.cookies()


def test_sign_out_ends_the_session_on_the_server(visit: Visit) -> None:
    visit.sign_in_at_provider("ada")
    session = visit.session()["value"]
    headers = {"Authorization": f"Bearer {session}"}
    assert httpx.get(f"{visit.url}/v1/whoami", headers=headers).status_code == 200
    visit.page.get_by_role("button", name="Sign out").click()
    visit.page.wait_for_url(f"{visit.url}/login")
    assert httpx.get(f"{visit.url}/v1/whoami", headers=headers).status_code == 401
    assert not visit.cookies()


def test_the_answer_to_another_sign_in_is_refused(visit: Visit) -> None:
    """A link of an attacker would sign the victim in as the attacker."""
    visit.go("/login/callback?code=stolen&state=other")
    expect(visit.page.get_by_role("alert")).to_have_text(re.compile("began in another browser"))
    visit.go("/login/provider")
    visit.go("/login/callback?code=stolen&state=other")
    expect(visit.page.get_by_role("alert")).to_have_text("This is the answer to another sign-in: sign in again.")
    assert f"eyas-session-{visit.url.rpartition(':')[2]}" not in visit.cookies()


def test_a_wrong_code_and_a_refusal_of_the_provider_are_told_in_one_line(visit: Visit) -> None:
    visit.go("/login/provider")
    state = re.search(r"state%22%3A%20%22([\w-]+)", next(cookie["value"] for name, cookie in visit.cookies().items() if "sign-in" in name))
    assert state is not None
    visit.go(f"/login/callback?error=access_denied&state={state[1]}")
    expect(visit.page.get_by_role("alert")).to_have_text("The identity provider refused the sign-in.")
    visit.go(f"/login/callback?code=wrong&state={state[1]}")
    expect(visit.page.get_by_role("alert")).to_have_text("the provider refused the sign-in (invalid_grant): sign in again")


def test_a_token_still_signs_in(visit: Visit, signed_in_by: tuple[PlatformProcess, OidcServer]) -> None:
    visit.sign_in((signed_in_by[0].home / "token").read_text().strip())
    assert visit.session()["value"].startswith("eyas_s")
