"""Signing in, the page of all recommenders, and what each page has: no hurdle, no error, no other host."""

import pytest

from tests.servers.platform_process import until

pytestmark = pytest.mark.requirement("C-01", "C-09")


def test_nobody_comes_in_without_a_token_and_a_wrong_one_is_told(visitor):
    stranger = visitor(token=None)
    stranger.expected.append("401")  # the browser says of a refused login that it was refused
    stranger.go("/")
    assert stranger.page.url.endswith("/login")
    stranger.page.get_by_label("Token").fill("a-wrong-one")
    stranger.page.get_by_role("main").get_by_role("button", name="Sign in").click()
    assert stranger.page.get_by_role("alert").text_content() == "Unknown token."
    assert not [one for one in stranger.context.cookies() if one["value"]]


def test_the_token_is_out_of_reach_of_scripts_and_gone_after_signing_out(visitor):
    someone = visitor()
    assert someone.page.evaluate("document.cookie") == ""
    someone.page.get_by_role("button", name="Sign out").click()
    someone.page.wait_for_url("**/login")
    someone.go("/")
    assert "/login" in someone.page.url


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_home_shows_each_recommender_in_a_line_that_everybody_can_read(visitor, theme):
    someone = visitor(color_scheme=theme)
    someone.go("/")
    line = someone.page.get_by_role("row").filter(has_text="movies")
    assert "version 1" in line.inner_text()
    assert "none yet" in someone.page.get_by_role("row").filter(has_text="empty").inner_text()
    assert someone.hurdles() == []


def test_home_can_be_read_without_scripts(visitor):
    someone = visitor(java_script_enabled=False)
    someone.go("/")
    someone.page.get_by_role("link", name="movies").wait_for()
    someone.page.get_by_label("Light or dark").select_option("dark")
    someone.page.get_by_role("button", name="set").click()
    assert someone.page.locator("html").get_attribute("data-theme") == "dark"


def test_a_new_recommender_appears_by_itself(visitor, story):
    someone = visitor()
    someone.go("/")
    document = story.get("/v1/recommenders/empty")["spec"] | {"name": "newcomer"}
    story.post("/v1/recommenders", document, run=False)
    until("the open page shows it", lambda: someone.page.get_by_role("link", name="newcomer").is_visible())
    story.client.delete("/v1/recommenders/newcomer").raise_for_status()
