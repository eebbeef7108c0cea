"""Every page at three widths in both themes: nothing is cut off, no column is missing, all text can be read, and axe finds no fault."""

from __future__ import annotations

import pytest

from tests.tools.screenshots import paths

pytestmark = pytest.mark.requirement("C-01", "C-09")


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [400, 800, 1280])
def test_every_page_fits(visitor, story, rejected, subtests, width, theme):
    good = story.get("/v1/recommenders/movies/runs")["items"][0]["id"]
    someone = visitor(color_scheme=theme, viewport={"width": width, "height": 800})
    someone.expected.append("404")
    for path in (*paths(story), f"/runs/{rejected}", f"/runs/compare?run={good}&run={rejected}", "/recommenders/movies/try?item=7"):
        with subtests.test(path=path):
            someone.go(path)
            assert someone.misfits() == []
            if path != "/docs":  # the reader of the API's reference is a library
                assert someone.hurdles() == []


def test_a_row_is_a_list_with_the_headings_of_its_columns_where_the_page_is_narrow(visitor):
    someone = visitor(viewport={"width": 400, "height": 800})
    someone.go("/")
    row = someone.page.get_by_role("row").filter(has_text="movies")
    assert row.get_by_role("cell").count() == 5 and row.get_by_role("rowheader").count() == 1, "it is still a table for screen readers"
    labels = row.locator("td, th").evaluate_all("cells => cells.map((cell) => getComputedStyle(cell, '::before').content)")
    assert labels == ['"Name"', '"Serving"', '"Hit rate"', '"Newest answer"', '"Drift"', '"Active"']
    assert someone.page.get_by_role("columnheader", name="Newest answer").count() == 1
    lowest = row.get_by_text("lowest")
    assert "highest" in lowest.inner_text() and "last" in lowest.inner_text() and "%" in lowest.inner_text()


def test_a_misfit_is_noticed(visitor):
    someone = visitor(viewport={"width": 400, "height": 800})
    someone.go("/")
    faults = {
        "the page is": "document.querySelector('h1').style.width = '900px'",
        "cut: ": "document.querySelector('td').style.cssText = 'white-space: nowrap; width: 20px; overflow: hidden'",
        "column not shown": "document.querySelector('td').style.display = 'none'",
        "labels": "document.querySelector('td').dataset.label = 'Else'",
        "small": "document.querySelector('svg.spark').outerHTML = '<svg width=90 height=20><text y=9 font-size=4>x</text></svg>'",
    }
    for fault, change in faults.items():
        someone.go("/")
        assert someone.misfits() == []
        someone.page.evaluate(change)
        assert any(misfit.startswith(fault) for misfit in someone.misfits()), fault
