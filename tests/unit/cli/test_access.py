"""`eyas tokens`, `whoami`, `audit`, and where the token comes from."""

from __future__ import annotations

import json

import pytest

pytestmark = pytest.mark.requirement("C-01")

ABOUT = {
    "id": "t1",
    "name": "shop",
    "role": "client",
    "recommenders": ["films"],
    "created_at": "2026-01-01T00:00:00Z",
    "created_by": "owner",
    "expires_at": "2026-04-01T00:00:00Z",
    "revoked_at": None,
    "revoked_by": None,
}


def test_a_made_token_goes_to_standard_output_alone(platform, eyas):
    platform.says("POST /v1/tokens", {"about": ABOUT, "token": "eyas_t1_0f"})
    result = eyas("tokens", "create", "shop", "--role", "client", "--recommender", "films", "--expires-in", "never")
    assert result.stdout == "eyas_t1_0f\n"
    assert "its secret is shown only once" in result.stderr
    assert platform.body == {"name": "shop", "role": "client", "recommenders": ["films"], "expires_in": None}


def test_tokens_are_listed_and_revoked(platform, eyas):
    platform.says("GET /v1/tokens", {"items": [ABOUT], "next": None})
    platform.says("DELETE /v1/tokens/t1", ABOUT | {"revoked_at": "2026-02-01T00:00:00Z", "revoked_by": "owner"})
    assert "films" in eyas("tokens", "list").stdout
    assert "revoked at 2026-02-01 00:00:00 by owner" in eyas("tokens", "revoke", "t1").stdout


def test_an_id_that_is_none_asks_for_nothing(platform, eyas):
    assert eyas("tokens", "revoke", "../runs").exit_code == 2
    assert platform.asked == []


def test_whoami_is_one_line(platform, eyas):
    platform.says("GET /v1/whoami", {"name": "owner", "token": "bootstrap", "role": "admin", "recommenders": None, "expires_at": None})
    assert eyas("whoami").stdout == "owner: admin for all recommenders (token bootstrap)\n"


def test_the_audit_log_is_asked_by_filter_and_says_what_is_unknown(platform, eyas):
    line = {"at": "2026-01-01T00:00:00Z", "actor": "ada", "action": "POST /v1/tokens", "target": "/v1/tokens", "status": None, "detail": ""}
    platform.says("GET /v1/audit", {"items": [line], "next": None})
    assert "unknown" in eyas("audit", "--actor", "ada", "--since", "2026-01-01T00:00:00Z").stdout
    assert dict(platform.asked[-1].url.params) == {"actor": "ada", "since": "2026-01-01T00:00:00Z", "limit": "50"}
    assert json.loads(eyas("audit", "--json").stdout)["items"] == [line]
    platform.says("GET /v1/audit", {"items": [], "next": None})
    assert eyas("audit", "--actor", "bob").stdout == "no matching write requests\n"
    assert eyas("audit").stdout == "no write requests yet\n"


def test_the_token_comes_from_the_environment_before_the_homes_file(platform, eyas, monkeypatch):
    platform.says("GET /v1/tokens", {"items": [], "next": None})
    eyas("tokens", "list")
    assert platform.asked[-1].headers["authorization"] == "Bearer a-token"
    monkeypatch.setenv("EYAS_TOKEN", "another")
    eyas("tokens", "list")
    assert platform.asked[-1].headers["authorization"] == "Bearer another"
    monkeypatch.setenv("EYAS_TOKEN", "two\nlines")
    refused = eyas("tokens", "list")
    assert (refused.exit_code, "two" in refused.output) == (2, False)
