"""Serving and Settings in a real browser: each button, live without a reload, and readable by everybody."""

import httpx
import pytest

from tests.servers.platform_process import until

pytestmark = pytest.mark.requirement("C-01", "C-09")

PAGES = ("/serving", "/settings", "/settings/audit", "/settings/storage")


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_no_page_keeps_anybody_out(visitor, theme):
    someone = visitor(color_scheme=theme)
    for path in PAGES:
        someone.go(path)
        assert someone.hurdles() == [], path


def test_serving_follows_who_answers_without_a_reload(visitor, story):
    someone = visitor()
    someone.go("/serving")
    main = someone.page.get_by_role("main")
    assert "1 of 1 replica ready" in main.inner_text()
    someone.page.get_by_role("row").filter(has_text="embedded").get_by_text("up to date").wait_for()
    timed = someone.page.get_by_role("row").filter(has_text="whole answer")
    before = timed.inner_text()
    story.post("/v1/recommend/movies", {"user": 2, "k": 1})
    until("the open page counts it", lambda: timed.inner_text() != before)
    routes = someone.page.get_by_role("row").filter(has=someone.page.get_by_role("link", name="movies", exact=True))
    routes.get_by_role("link", name="by stage").click()
    assert "of movies" in someone.page.get_by_role("heading", name="Latency by stage").inner_text()


def test_pages_can_be_read_and_tokens_made_without_scripts(visitor, story):
    someone = visitor(java_script_enabled=False)
    for path, text in zip(PAGES, ("triton-1", "admin: everything", "POST /v1/recommenders", "Show what would be collected"), strict=True):
        someone.go(path)
        assert text in someone.page.get_by_role("main").inner_text()
    someone.go("/settings")
    someone.page.get_by_text("Create a token").click()
    someone.page.get_by_label("Holder").fill("no-scripts")
    someone.page.get_by_role("button", name="Create the token").click()
    assert someone.page.get_by_label("Token").input_value().startswith("eyas_")


def test_a_token_is_made_shown_once_used_and_revoked(visitor, story):
    someone = visitor()
    someone.go("/settings")
    someone.page.get_by_text("Create a token").click()
    someone.page.get_by_label("Holder").fill("ada")
    someone.page.get_by_label("Role").select_option("viewer")
    someone.page.get_by_label("Only for these recommenders").fill("movies")
    someone.page.get_by_label("Valid for").select_option("12h")
    with someone.page.expect_response(lambda answer: answer.request.method == "POST") as made:
        someone.page.get_by_role("button", name="Create the token").click()
    secret = someone.page.get_by_label("Token").input_value()
    assert someone.hurdles() == []
    assert secret not in someone.page.url
    assert not [one for one in someone.context.cookies() if secret in one["value"]]
    assert made.value.headers["cache-control"] == "no-store"

    ada = visitor(token=secret)
    ada.go("/settings")
    assert "yours has the role viewer" in ada.page.get_by_role("main").inner_text()
    assert ada.page.get_by_role("button", name="Create the token").count() == 0

    someone.page.get_by_role("link", name="Back to the tokens").click()
    assert secret not in someone.page.content()
    line = someone.page.get_by_role("row").filter(has_text="ada")
    line.get_by_text("Revoke…").click()
    assert "Requests with the token of ada are refused" in line.inner_text()
    line.get_by_role("button", name="Revoke the token").click()
    someone.page.wait_for_url("**/settings")
    assert "The token of ada is revoked" in someone.page.get_by_role("status").filter(has_text="revoked").inner_text()
    ada.go("/settings")
    assert "/login" in ada.page.url
    url = str(story.client.base_url)
    assert httpx.get(f"{url}/v1/whoami", headers={"Authorization": f"Bearer {secret}"}).status_code == 401
    assert secret not in story.log


def test_a_wrong_token_is_told_and_the_form_stays_filled(visitor):
    someone = visitor()
    someone.expected.append("422")
    someone.go("/settings")
    someone.page.get_by_text("Create a token").click()
    someone.page.get_by_label("Holder").fill("ada-2")
    someone.page.get_by_label("Only for these recommenders").fill("No!")
    someone.page.get_by_role("button", name="Create the token").click()
    assert "No token was created" in someone.page.get_by_role("alert").inner_text()
    assert someone.page.get_by_label("Holder").input_value() == "ada-2"


def test_the_audit_log_is_filtered_by_what_is_clicked(visitor, story):
    story.client.post("/v1/runs/nope:cancel")
    someone = visitor()
    someone.go("/settings/audit")
    someone.page.get_by_role("link", name="POST /v1/runs/{id}:cancel").first.click()
    rows = someone.page.get_by_role("row").all()[1:]
    assert rows and all("POST /v1/runs/{id}:cancel" in row.inner_text() for row in rows)
    assert "refused 404" in rows[0].inner_text()
    someone.page.get_by_label("Actor").fill("nobody")
    someone.page.get_by_role("button", name="Show").click()
    assert "No entry matches" in someone.page.get_by_role("main").inner_text()


def test_the_storage_is_looked_at_and_collected(visitor):
    someone = visitor()
    someone.go("/settings/storage")
    someone.page.get_by_role("button", name="Show what would be collected").click()
    assert "Nothing was changed" in someone.page.get_by_role("status").filter(has_text="changed").inner_text()
    someone.page.get_by_text("Collect now…").click()
    someone.page.get_by_role("button", name="Collect", exact=True).click()
    assert "Collected" in someone.page.get_by_role("status").filter(has_text="Collected").inner_text()
    assert someone.hurdles() == []
