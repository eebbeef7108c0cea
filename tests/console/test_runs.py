"""Runs in a browser: watched without a reload, explained, compared; each button pressed."""

from __future__ import annotations

import re

import pytest

from tests.console.conftest import PICKY as NAME
from tests.servers.platform_process import until

pytestmark = pytest.mark.requirement("C-01", "C-09")


def says(someone, text):
    until(f"the page says {text!r}", lambda: text in someone.page.locator("#top").inner_text())


def press(someone, opened, button, **fields):
    someone.page.get_by_text(f"{opened}…", exact=True).click()
    for label, value in fields.items():
        someone.page.locator("details.deed[open]").get_by_label(label).fill(value)
    someone.page.get_by_role("button", name=button).click()


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_everybody_can_read_every_page_of_runs(visitor, story, rejected, theme):
    good = story.get("/v1/recommenders/movies/runs")["items"][0]["id"]
    someone = visitor(color_scheme=theme)
    for path in ("/runs", f"/recommenders/{NAME}/runs", f"/runs/{rejected}", f"/runs/{good}", f"/runs/compare?run={good}&run={rejected}"):
        someone.go(path)
        for one in someone.page.locator("main details:not(.deed) > summary").all():
            one.click()
        assert someone.hurdles() == [], path
        assert someone.page.locator("h1").count() == 1


def test_a_run_is_watched_to_its_end_without_a_reload(visitor, story, rejected):
    made = story.post(f"/v1/recommenders/{NAME}/runs", {"fresh": True, "reason": "to be watched"})["id"]
    someone = visitor()
    someone.go(f"/runs/{made}")
    someone.page.evaluate("window.same = true")
    says(someone, "Rejected after evaluate: 1 of 1 checked gates failed: auc is")
    end = re.compile(r"attempt: finished seconds=\S+ attempt=\S+-evaluate-1")
    until("its log has been followed", lambda: end.search(someone.page.locator("#log").inner_text()))
    until("its gates are told", lambda: "missed by" in someone.page.locator("#gates").inner_text())
    assert "the run ended before verify finished" in someone.page.locator("#gates").inner_text()
    assert someone.page.evaluate("window.same") is True


def test_a_rejected_one_explains_itself_without_scripts_too(visitor, rejected):
    someone = visitor(java_script_enabled=False)
    someone.go("/runs?state=rejected")
    someone.page.get_by_role("link", name=rejected).click()
    assert "Rejected after evaluate" in someone.page.locator("#top").inner_text()
    someone.page.get_by_role("link", name="log of etl").click()
    assert "rows: split train=" in someone.page.locator("#log").inner_text()


def test_one_that_waits_is_put_forward_and_cancelled_with_a_reason(visitor, story, rejected):
    first, second = (story.post(f"/v1/recommenders/{NAME}/runs", {"fresh": True})["id"] for _ in range(2))
    someone = visitor()
    someone.go(f"/runs/{second}")
    press(someone, "Priority", "Set the priority", **{"Priority, -100": "7", "Reason": "it cannot wait"})
    assert "The priority is now 7." in someone.page.get_by_role("status").first.inner_text()
    press(someone, "Cancel", "Cancel this run", Reason="nobody wants it")
    says(someone, "nobody wants it")
    assert story.wait_for_run(second, "cancelled")["priority"] == 7
    story.wait_for_run(first, "rejected")


def test_a_retry_begins_where_the_run_ended_and_leads_to_the_new_one(visitor, story, rejected):
    someone = visitor()
    someone.go(f"/runs/{rejected}")
    press(someone, "Retry", "Start a new run", Reason="once more")
    someone.page.wait_for_url(lambda url: "/runs/" in url and rejected not in url)
    assert rejected in someone.page.locator("#top").inner_text()
    says(someone, "Rejected after evaluate")
    made = story.wait_for_run(someone.page.url.rsplit("/", 1)[1], "rejected")
    assert (made["cause"], made["retry_of"], made["stages"][1]["reused"]) == ("once more", rejected, True)


@pytest.mark.parametrize("scripts", [True, False])
def test_runs_are_chosen_in_the_list_and_compared(visitor, story, rejected, scripts):
    someone = visitor(java_script_enabled=scripts)
    page = someone.page
    someone.go(f"/runs/{rejected}")
    page.get_by_role("link", name="Compare with other runs").click()
    assert page.get_by_label(f"compare {rejected}").is_checked()
    good = story.get("/v1/recommenders/movies/runs")["items"][0]["id"]
    someone.go(f"/runs?run={rejected}")
    page.get_by_label(f"compare {good}").check()
    if scripts:
        page.get_by_label("Recommender").focus()
        page.evaluate("look()")
        assert page.get_by_label(f"compare {good}").is_checked(), "a refresh leaves the choice"
    page.get_by_role("button", name="Compare the chosen runs").click()
    page.get_by_role("heading", name="Comparison of 2 runs").wait_for()
    assert "model.family" in page.get_by_role("table").first.inner_text()
    page.get_by_role("img", name="Loss by epoch").wait_for()
    page.get_by_role("img", name="auc with 95 % intervals").wait_for()


def test_a_run_shows_its_losses_and_its_metrics_as_charts(visitor, story):
    run = story.get("/v1/recommenders/movies/runs")["items"][0]["id"]
    someone = visitor()
    someone.go(f"/runs/{run}")
    page = someone.page
    losses = page.get_by_role("img", name="Loss by epoch")
    assert losses.is_visible() and losses.locator("polyline").count() == 2, "of training and of validation rows"
    report = story.get(f"/v1/runs/{run}/training")
    page.get_by_text("Numbers of the chart").click()
    assert page.locator("#epochs tbody tr").count() == len(report["epochs"]) == 2
    page.get_by_role("columnheader", name="Validation: loss").wait_for()
    assert "this run" in page.get_by_role("img", name="auc with 95 % intervals").text_content()
