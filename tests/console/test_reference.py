"""The API reference in a real browser: no script, no other host, no error, readable by everybody."""

import pytest

pytestmark = pytest.mark.requirement("C-01", "C-09")


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_reference_asks_no_other_host_and_keeps_nobody_out(visitor, theme):
    """What another host is asked for, and what the content policy stops, fails the visitor at its end."""
    someone = visitor(color_scheme=theme)
    assert someone.go("/docs").status == 200
    operation = someone.page.locator("#recommend")
    operation.locator("summary").click()
    assert "$EYAS_URL/v1/recommend/NAME" in operation.inner_text()
    assert someone.hurdles() == []


def test_the_reference_comes_after_the_sign_in_and_without_scripts(visitor, story):
    someone = visitor(token=None, java_script_enabled=False)
    someone.go("/docs")
    assert "/login" in someone.page.url
    someone.page.get_by_label("Token").fill((story.home / "token").read_text().strip())
    someone.page.get_by_role("main").get_by_role("button", name="Sign in").click()
    someone.page.wait_for_url("**/docs")
    someone.page.get_by_role("heading", name="API reference").wait_for()
