"""A recommender's pages in a real browser: the hit rate of its versions, its spec, its versions, and each button of them."""

import pytest
import yaml

from tests.servers.platform_process import until
from tests.support.platform_world import spec

pytestmark = pytest.mark.requirement("C-01", "C-09")

PAGES = ("", "/spec", "/spec?from=1&to=1", "/versions/1")


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_no_page_of_it_keeps_anybody_out(visitor, story, theme):
    until("its answers are counted", lambda: story.get("/v1/recommenders/movies/life")["versions"])
    someone = visitor(color_scheme=theme)
    for path in PAGES:
        someone.go(f"/recommenders/movies{path}")
        someone.page.evaluate("for (const one of document.querySelectorAll('details')) one.open = true")
        assert someone.hurdles() == [], path


def test_its_life_is_seen_at_a_glance_and_goes_on_without_a_reload(visitor, story):
    someone = visitor()
    someone.go("/recommenders/movies")
    page = someone.page
    assert "version 1" in page.get_by_role("region", name="Serving version").inner_text()
    page.get_by_role("img", name="Hit rate of movies over time").wait_for()
    page.get_by_role("row").filter(has_text="Version 1, the first one, serves all users").wait_for()
    line = page.get_by_role("row").filter(has_text="version 1").first
    before = line.inner_text()
    story.post("/v1/recommend/movies", {"user": 3, "k": 3})
    until("the open page counts it", lambda: line.inner_text() != before, seconds=60)
    page.get_by_role("link", name="hour").click()
    assert page.url.endswith("?window=hour") and page.get_by_role("link", name="hour").get_attribute("aria-current") == "page"
    page.get_by_role("link", name="version 1").first.click()
    assert "auc at least 0.5" in page.get_by_role("main").inner_text()


def test_all_of_it_can_be_read_and_done_without_scripts(visitor, story):
    someone = visitor(java_script_enabled=False)
    someone.go("/recommenders/movies")
    assert "Timeline" in someone.page.get_by_role("main").inner_text()
    someone.page.get_by_role("img", name="Hit rate of movies over time").wait_for()
    someone.page.get_by_text("Numbers of the chart").click()
    someone.page.get_by_role("columnheader", name="Until (UTC)").wait_for()
    someone.go("/recommenders/movies/versions/1")
    someone.page.get_by_text("Tag…").click()
    someone.page.get_by_label("Name of the tag").fill("proven")
    someone.page.get_by_role("button", name="Add the tag").click()
    assert story.get("/v1/recommenders/movies/versions/1")["tags"] == ["proven"]
    someone.page.get_by_text("Remove tag proven…").click()
    someone.page.get_by_role("button", name="Remove the tag").click()
    assert story.get("/v1/recommenders/movies/versions/1")["tags"] == []


def test_a_spec_is_changed_with_its_faults_and_its_plan_shown_first(visitor, story):
    document = spec(story.data, model={"family": "popularity"}) | {"name": "drafted"}
    story.post("/v1/recommenders", document, run=False)
    someone = visitor()
    someone.expected.append("422")  # the browser says of a refused form that it was refused
    someone.go("/recommenders/drafted/spec")
    page = someone.page
    page.get_by_text("Change the spec").click()
    page.get_by_label("Spec (YAML)").fill(yaml.safe_dump(document | {"split": {"by": "time", "test": 7}}))
    page.get_by_role("button", name="Check").click()
    fault = page.get_by_role("alert").inner_text()
    assert "line" in fault and "split.test" in fault and someone.hurdles() == []
    page.get_by_label("Spec (YAML)").fill(yaml.safe_dump(document | {"split": {"by": "time", "test": 0.25}}))
    page.get_by_role("button", name="Check").click()
    said = page.get_by_role("main").inner_text()
    assert "+       test: 0.25" in said or "+   test: 0.25" in said
    assert "Plan of a run" in said and someone.hurdles() == []
    page.get_by_label("start a run of this spec").uncheck()
    page.get_by_role("button", name="Apply").click()
    assert "Spec 2 is applied" in page.get_by_role("status").filter(has_text="applied").inner_text()
    page.get_by_role("button", name="Compare").click()
    assert "Changes from spec 1 to spec 2" in page.get_by_role("main").inner_text()
    assert story.get("/v1/recommenders/drafted")["generation"] == 2
    story.client.delete("/v1/recommenders/drafted").raise_for_status()


def test_an_open_page_says_when_what_it_shows_is_gone(visitor, story):
    story.post("/v1/recommenders", spec(story.data, model={"family": "popularity"}) | {"name": "leaving"}, run=False)
    someone = visitor()
    someone.expected.append("404")
    someone.go("/recommenders/leaving")
    story.client.delete("/v1/recommenders/leaving").raise_for_status()
    someone.page.evaluate("void look()")
    until("it says so", lambda: "no recommender is called 'leaving'" in someone.page.get_by_role("main").inner_text())
    assert not someone.page.locator("#lost").is_visible()


def test_a_recommender_is_run_rolled_back_and_deleted_by_its_buttons(visitor, story):
    document = spec(story.data, model={"family": "popularity"}, gates=[{"parity": 1e-4}]) | {"name": "pressed"}
    story.post("/v1/recommenders", document, run=False)
    someone = visitor()
    page = someone.page

    def run():
        someone.go("/recommenders/pressed")
        page.get_by_text("Run now…").click()
        page.get_by_label("Reason").first.fill("to see it")
        page.get_by_role("button", name="Start the run").click()

    run()
    until("its run is there", lambda: story.get("/v1/recommenders/pressed/runs")["items"])
    assert story.get("/v1/recommenders/pressed/runs")["items"][0]["cause"] == "to see it"
    someone.go("/recommenders/pressed")
    page.get_by_role("region", name="Active").get_by_role("link", name="Run").wait_for()
    serves = page.get_by_role("region", name="Serving version")
    until("the open page says that it serves", lambda: "version 1" in serves.inner_text(), seconds=120)
    run()
    someone.go("/recommenders/pressed")
    until("the open page shows the second one's rollout", lambda: "version 2" in serves.inner_text(), seconds=120)
    page.get_by_text("Roll back…").click()
    page.locator("#roll-back").get_by_label("Reason").fill("enough seen")
    page.get_by_role("button", name="Roll back all users").click()
    assert "Version 1 serves all users" in page.get_by_role("status").filter(has_text="serves").inner_text()
    happened = page.get_by_role("row").filter(has_text="Version 2 is withdrawn")
    until("the open page tells who did it and why", lambda: happened.count() == 1 and "enough seen" in happened.inner_text(), seconds=60)
    until("nothing is under way", lambda: "none" in page.get_by_role("region", name="Active").inner_text(), seconds=60)
    page.get_by_text("Delete…").click()
    page.get_by_label("Repeat its name").fill("pressed")
    page.get_by_role("button", name="Delete the recommender").click()
    page.wait_for_url("**/")
    assert "pressed is deleted" in page.get_by_role("main").inner_text()
    assert story.client.get("/v1/recommenders/pressed").status_code == 404


def test_names_are_found_by_how_they_begin(visitor, story):
    someone = visitor()
    someone.go("/")
    someone.page.get_by_label("Names that begin with").fill("mov")
    someone.page.get_by_role("button", name="Find").click()
    someone.page.get_by_role("link", name="movies").wait_for()
    assert someone.page.get_by_role("link", name="empty").count() == 0
