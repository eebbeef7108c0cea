"""Drift and Recommend as people see them."""

from __future__ import annotations

import pytest

from tests.console.conftest import PICTURES
from tests.servers.platform_process import until

PICTURE = '<svg xmlns="http://www.w3.org/2000/svg" width="64" height="64"/>'

pytestmark = pytest.mark.requirement("C-01", "C-09")


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_drift_says_how_much_is_missing_and_keeps_nobody_out(visitor, theme):
    someone = visitor(color_scheme=theme)
    someone.go("/recommenders/movies/drift")
    assert "Too few positives yet" in someone.page.get_by_role("main").inner_text()
    assert "of 2,000 positives since the version serves" in someone.page.get_by_role("main").inner_text()
    assert someone.hurdles() == []


@pytest.mark.parametrize("scripts", [True, False])
def test_a_user_is_tried_and_no_kpi_hears_of_it(visitor, story, scripts):
    someone = visitor(java_script_enabled=scripts)
    before = [one["answers"] for one in story.get("/v1/recommenders/movies/kpis", window="7d")["versions"]]
    someone.go("/recommenders/movies/try")
    someone.page.get_by_label("User", exact=True).fill("7")
    someone.page.get_by_role("button", name="Recommend").click()
    main = someone.page.get_by_role("main")
    main.get_by_role("heading", name="User 7 gets 10 items from version 1 (stable)").wait_for()
    stages = main.get_by_role("table", name="Stages of the answer").locator("tbody th").all_inner_texts()
    assert stages == ["Retrieve", "Filter", "Score", "Order"]
    assert main.get_by_role("table", name="Items of the answer").get_by_role("row").count() == 11
    if scripts:
        assert someone.hurdles() == []
    main.get_by_role("table", name="Items of the answer").get_by_role("link").first.click()
    assert "item=" in someone.page.url
    assert [one["answers"] for one in story.get("/v1/recommenders/movies/kpis", window="7d")["versions"]] == before


def test_titles_and_pictures_of_items_come_from_the_catalogue(visitor, story):
    item = story.post("/v1/recommend/movies", {"user": 7, "k": 1})["items"][0]["item"]
    writes = [{"item": item, "attributes": {"title": "Alien", "image": f"https://{PICTURES}/a.png"}}]
    story.client.post("/v1/items/movies", json={"items": writes}).raise_for_status()
    someone = visitor(viewport={"width": 400, "height": 800})
    someone.expected += [f"another host was asked: https://{PICTURES}/", "https://other.example/b.png"]
    someone.context.route("https://*.example/**", lambda route: route.fulfill(body=PICTURE, content_type="image/svg+xml"))
    someone.go("/recommenders/movies/try?user=7&k=60")  # the whole catalogue: on a busy machine an answer may be the fallback's
    row = someone.page.get_by_role("table", name="Items of the answer").get_by_role("row").filter(has_text="Alien")
    row.get_by_role("link", name=str(item), exact=True).wait_for()
    picture = row.get_by_role("img", name="picture of Alien")
    picture.scroll_into_view_if_needed()
    until("it is loaded", lambda: picture.evaluate("picture => picture.complete && picture.naturalWidth > 0"))
    assert someone.misfits() == [] and someone.hurdles() == []
    blocked = """() => new Promise((resolve) => {
      addEventListener("securitypolicyviolation", (event) => resolve(event.blockedURI));
      new Image().src = "https://other.example/b.png";
    })"""
    assert someone.page.evaluate(blocked) == "https://other.example/b.png"
    story.client.delete(f"/v1/items/movies/{item}").raise_for_status()
    story.client.post("/v1/items/movies", json={"items": [{"item": item}]}).raise_for_status()


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_bad_field_is_told_where_it_was_filled_in(visitor, theme):
    someone = visitor(color_scheme=theme)
    someone.go("/recommenders/movies/try?user=somebody")
    assert "is not an integer id of 64 bits" in someone.page.get_by_role("alert").inner_text()
    assert someone.page.get_by_label("User", exact=True).input_value() == "somebody"
    assert someone.hurdles() == []
