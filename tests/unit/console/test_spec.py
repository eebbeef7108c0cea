"""A spec's pages: what is applied, what was, and changing it with the faults at their lines and the plan shown first."""

from __future__ import annotations

import re
import threading

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from services.console.pages import spec as spec_page
from services.console.specs import MOST_LINES, changes, full_text, short
from shared.contracts import spec_lines, yaml12
from shared.contracts.spec import parse_spec
from shared.contracts.spec_lines import placed_faults
from shared.domain.access import Role
from tests.support.api_world import document
from tests.unit.console.conftest import Visitor
from tests.unit.console.test_recommender import EVIL, text_of

pytestmark = pytest.mark.requirement("C-01")

PAGE = "/recommenders/m/spec"


def yaml_of(**changed):
    return yaml.safe_dump(document(**changed), sort_keys=False)


@pytest.fixture
def written(world):
    world.add_recommender()
    world.add_recommender(split={"by": "time", "test": 0.3})
    return world


def test_the_short_form_is_the_same_spec():
    spec = parse_spec(yaml_of(rollout={"steps": [0.01, 0.5]}, retrain={"on": [{"drift": {"psi": 0.3}}]}))
    text = short(spec.document())
    assert parse_spec(text) == spec and len(text) < len(full_text(spec.document())) / 3


def test_a_document_that_is_no_spec_any_more_is_shown_whole():
    assert yaml.safe_load(short({"name": "m", "gone": [1]})) == {"name": "m", "gone": [1]}
    assert short({}) == "{}\n"


lines = st.lists(st.sampled_from(["a: 1", "b: 2", "c: 3", "d:", "  e: 5"]), max_size=12)


@given(lines, lines)
def test_changes_hold_every_line_that_differs(before, after):
    found = changes("\n".join(before), "\n".join(after))
    assert (found == []) == (before == after)
    gone, new = ([one.text for one in found if one.mark == mark] for mark in "-+")
    kept = len(before) - len(gone)
    assert kept == len(after) - len(new) and all(one in before for one in gone) and all(one in after for one in new)


@pytest.mark.parametrize(
    "field, line", [("name", 1), ("rollout.steps.1", 5), ("rollout.analysis.nothing", 6), ("nothing", None), ("rollout.steps.9", 3)]
)
def test_a_field_is_found_in_its_line(field, line):
    text = "name: m\nrollout:\n  steps:\n  - 0.1\n  - 0.5\n  analysis: {}\n"
    assert [fault.line for fault in placed_faults(text, [(field, "is wrong")])] == [line]
    assert [fault.line for broken in ("a: [", "- a") for fault in placed_faults(broken, [(field, "is wrong")])] == [None, None]


@pytest.mark.requirement("U-13")
def test_a_text_with_many_faults_is_composed_once_and_within_bounds(monkeypatch):
    asked = []
    monkeypatch.setattr(spec_lines, "compose", lambda *given: asked.append(given) or yaml12.compose(*given))
    text = "".join(f"n{number}: 1\n" for number in range(200))
    errors = [(f"n{number}", "unknown") for number in range(100)]
    assert [fault.line for fault in placed_faults(text, errors)] == list(range(1, 101))
    assert len(asked) == 1
    for costly in ("[" * 30_000, "a: [" + "1, " * 20_000 + "]", "a: 1\n" + "#" * 70_000):
        assert placed_faults(costly, errors[:1])[0].line is None


@pytest.mark.requirement("U-13")
def test_long_texts_are_not_compared_line_by_line():
    lines = [f"- {number % 150}\n" for number in range(MOST_LINES + 1)]
    (said,) = changes("".join(lines), "".join(reversed(lines)))
    assert said.text == f"more than {MOST_LINES} lines: compare them with another tool"
    assert changes("".join(lines), "".join(lines)) == []


@pytest.mark.requirement("U-13")
def test_pages_read_and_write_specs_in_another_thread_than_the_event_loops(written, visitor, monkeypatch):
    """The test's client runs the event loop in the main thread."""
    workers = []
    for name in ("short", "full_text", "placed_faults", "changes"):
        act = getattr(spec_page, name)
        monkeypatch.setattr(spec_page, name, lambda *given, act=act: workers.append(threading.current_thread()) or act(*given))
    assert visitor.get(f"{PAGE}?from=1&to=2").status_code == 200
    assert visitor.press(f"{PAGE}/check", spec=yaml_of(split={"by": "time", "test": 7})).status_code == 422
    assert len(workers) >= 6
    assert threading.main_thread() not in workers


def test_the_page_shows_the_spec_who_changed_it_and_in_what(written, visitor):
    said = text_of(visitor.get(PAGE))
    assert "Spec 2, the current one" in said and "test: 0.3" in said
    found = visitor.get(f"{PAGE}?from=1&to=2")
    assert '<span class="add">+   test: 0.3</span>' in found.text
    assert re.search(r'<span class="del">-   test: \S+</span>', found.text)
    assert "by operator" in text_of(found)
    assert visitor.get(f"{PAGE}?from=1&to=9").status_code == 404
    assert visitor.get(f"{PAGE}?from={EVIL}&to=x").status_code == 200
    assert "There are no changes" in visitor.get(f"{PAGE}?from=2").text


def test_the_faults_of_a_change_are_shown_at_their_lines_and_nothing_is_lost(written, visitor):
    text = yaml_of(split={"by": "time", "test": 7}).replace("\n", "\r\n")
    answer = visitor.press(f"{PAGE}/check", spec=text)
    line = text.replace("\r", "").splitlines().index("  test: 7") + 1
    assert answer.status_code == 422
    assert f"line {line}, <code>split.test</code>: expected a share" in answer.text
    assert "test: 7" in answer.text and 'aria-invalid="true"' in answer.text and "/spec/apply" not in answer.text


@pytest.mark.parametrize("text", ["", "a: [", "a: 1\na: 2", EVIL, "name: other", "&a [*a]"])
def test_a_text_that_is_no_spec_is_told_so(written, visitor, text):
    answer = visitor.press(f"{PAGE}/check", spec=text)
    assert answer.status_code == 422 and 'role="alert"' in answer.text and "<script>alert" not in answer.text


def test_the_spec_of_another_is_not_applied_here(written, visitor):
    answer = visitor.press(f"{PAGE}/check", spec=yaml_of(name="other"))
    assert (answer.status_code, "the name of a recommender cannot change" in answer.text) == (422, True)
    assert visitor.press(f"{PAGE}/apply", spec=yaml_of(name="other"), generation="2").status_code == 422
    assert list(written.recommenders.rows) == ["m"]


def test_a_change_is_shown_with_its_plan_and_applied_afterwards(written, visitor):
    text = yaml_of(split={"by": "time", "test": 0.25})
    shown = visitor.press(f"{PAGE}/check", spec=text)
    said = text_of(shown)
    assert "- test: 0.3" in said and "+ test: 0.25" in said
    assert "etl is reused nothing has changed since r1-etl-1" in said and "Gates: auc at least 0.6" in said
    assert written.recommenders.get("m").generation == 2, "nothing is applied yet"
    done = visitor.press(f"{PAGE}/apply", spec=text, generation="2", run="yes")
    (run,) = written.runs.rows
    assert (done.status_code, done.headers["location"]) == (303, f"/runs/{run}")
    assert written.recommenders.get("m").generation == 3


def test_a_change_without_a_run_starts_none(written, visitor):
    done = visitor.press(f"{PAGE}/apply", spec=yaml_of(split={"by": "time", "test": 0.25}), generation="2")
    assert (done.headers["location"], written.runs.rows) == (PAGE, {})


def test_what_somebody_else_changed_meanwhile_is_not_written_over(written, visitor):
    for seen in ("", "\u0662", "2" * 5000):
        assert visitor.press(f"{PAGE}/apply", spec=yaml_of(), generation=seen, run="yes").status_code == 412
    answer = visitor.press(f"{PAGE}/apply", spec=yaml_of(), generation="1", run="yes")
    assert (answer.status_code, "Changed in the meantime" in answer.text) == (412, True)
    assert written.recommenders.get("m").generation == 2


def test_who_may_only_look_changes_nothing(written, site):
    viewer = Visitor(site, written.holder(Role.VIEWER)._headers["Authorization"].removeprefix("Bearer "))
    assert "<textarea" not in viewer.get(PAGE).text
    assert viewer.press(f"{PAGE}/apply", spec=yaml_of(), generation="2").status_code == 403


def test_what_somebody_wrote_into_a_spec_stays_text(world, visitor):
    world.add_recommender(data={"interactions": {"uri": f"{EVIL}.csv"}, "items": {"uri": "b.csv", "key": "movieId"}})
    world.add_recommender()
    for path in (PAGE, f"{PAGE}?from=1&to=2"):
        answer = visitor.get(path)
        assert answer.status_code == 200 and "<script>alert" not in answer.text
    assert "alert(1)" in answer.text
