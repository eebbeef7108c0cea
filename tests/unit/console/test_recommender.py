"""A recommender's own page: what serves, whether it is good, what goes on, what happened and why; and its buttons."""

from __future__ import annotations

import html
import re
from dataclasses import replace
from datetime import timedelta

import pytest

from services.console.activity import happened, lettered
from services.monitor.empty_answers import EmptyAnswersLook
from services.monitor.kpi_history import KpiPeriod, VersionHistories
from shared.domain.access import Role
from shared.domain.machine import Request
from shared.domain.route import Route
from shared.domain.sequential_test import VariantSample
from shared.ports import EmptyAnswers, HistoryEntry, RouteEntry
from shared.run_factory import asked_rollout
from tests.support.api_world import NOW
from tests.unit.console.conftest import Visitor

pytestmark = pytest.mark.requirement("C-01", "C-09")

EVIL = '"><script>alert(1)</script>'
PAGE = "/recommenders/m"


def text_of(answer):
    """As it is read: without tags, spaces as one."""
    return html.unescape(re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", answer.text)))


def minute(n):
    return NOW + timedelta(minutes=n)


def entry(generation, since, until=None, actor="eyas", reason="because", **route):
    fields = {"stable": 1, "candidate": None, "weight": 0.0, "salt": "", "step": -1} | route
    return RouteEntry(Route(**fields, generation=generation, since=since), until, actor, reason)


@pytest.fixture
def told(world):
    """Version 1 serves, version 2 was tried and taken back, version 3 is being tried."""
    world.add_recommender()
    world.add_retrainer()
    for number in (1, 2, 3):
        world.add_version(number, f"r{number}")
        world.add_run(f"r{number}", "registered", ("etl",))
    world.add_rollout("r2-rollout", "rolled_back", 2)
    world.add_rollout("r3-rollout", "canary", 3)
    world.route(1, candidate=3, weight=0.1, salt="r3-rollout", step=0)
    world.routes.past = [
        entry(1, NOW, minute(1), reason="the first version is promoted without a canary"),
        entry(2, minute(1), minute(2), candidate=2, weight=0.1, salt="r2-rollout", step=0),
        entry(3, minute(2), minute(3), reason="the candidate earns fewer hits"),
        entry(4, minute(3), None, candidate=3, weight=0.1, salt="r3-rollout", step=0),
    ]
    line = [KpiPeriod(minute(n), minute(n + 1), VariantSample(40, 10.0 + n, 4.0, 50, 12 + n, 9)) for n in range(3)]
    tried = [KpiPeriod(minute(1), minute(2), VariantSample(4, 1.0, 1.0, 5, 1, 1))]
    world.life = VersionHistories(NOW, minute(3), timedelta(minutes=1), minute(3), {1: line, 2: tried}, 0)
    return world


def test_it_says_what_serves_since_when_and_by_whose_decision(told, visitor):
    said = text_of(visitor.get(PAGE))
    assert "version 1" in said and "by eyas: the first version is promoted without a canary" in said
    assert re.search(r"canary version 3 gets 10 % of the users", said)


def test_a_run_that_failed_is_told_when_it_failed(told, visitor):
    told.add_run("r4", "failed", reason="etl: its file is gone")
    told.runs.past = [HistoryEntry(NOW, "", "pending", "x", "owner"), HistoryEntry(minute(9), "etl", "failed", "x", "eyas")]
    rows = re.findall(r"<tr .*?</tr>", visitor.get(PAGE).text, re.DOTALL)
    assert "Jan 01 00:09:00" in next(row for row in rows if "Run failed" in row)


def test_it_says_what_that_earns_and_how_sure_it_is(told, visitor):
    said = text_of(visitor.get(PAGE))
    assert "30.0 % 95 % interval 18.1 % to 45.4 %: 40 users in 1 min" in said
    assert "<svg" in visitor.get(PAGE).text and 'class="band hue0"' in visitor.get(PAGE).text


def test_one_users_luck_is_no_fall_of_the_hit_rate(told, visitor):
    before = visitor.get(PAGE).text
    lucky = KpiPeriod(minute(3), minute(4), VariantSample(1, 0.0, 0.0, 1, 0, 0))
    told.life = replace(told.life, versions={1: [*told.life.versions[1], lucky], 2: told.life.versions[2]})
    said = visitor.get(PAGE)
    assert "40 users in 1 min" in text_of(said)
    assert said.text.count("<circle") == before.count("<circle") == 3, "version 2's four users aren't drawn either"
    assert "0.0 %" in text_of(said), "it stands in the table"


def test_what_happened_is_told_with_reasons_links_and_letters(told, visitor):
    answer = visitor.get(PAGE)
    said = text_of(answer)
    assert "Version 2 is withdrawn, version 1 serves all users rolled back the candidate earns fewer hits eyas" in said
    assert "Rollout of version 3 begins, at 10 %" in said
    assert "Run begins (full) because" in said
    assert 'href="/rollouts/r2-rollout"' in answer.text and 'href="/runs/r2"' in answer.text
    letters = re.findall(r'text-anchor="middle">([A-Z])</text>', answer.text)
    assert letters == sorted(letters) and len(letters) == len(set(letters)) > 4
    assert set(letters) == set(re.findall(r'<td[^>]*><b class="\w* text">([A-Z])</b>', answer.text))


@pytest.mark.requirement("C-05")
def test_of_a_rollout_that_was_started_by_hand_it_is_told_by_whom_and_why(told, visitor):
    asked = Request("start", "ada", "the outage is over")
    told.rollouts.rows["r3-rollout"] = replace(
        asked_rollout(told.recommenders.get("m"), 3, "r3-rollout", asked, NOW), status=told.rollouts.get("r3-rollout").status
    )
    assert "Rollout of version 3 begins, at 10 % the outage is over; because ada" in text_of(visitor.get(PAGE))


def test_the_window_is_chosen_by_links_and_nothing_else_is_taken(told, visitor):
    assert 'href="/recommenders/m?window=day"' in visitor.get(PAGE).text
    assert re.search(r'window=hour" aria-current="page"', visitor.get(f"{PAGE}?window=hour").text)
    assert re.search(r'window=week" aria-current="page"', visitor.get(f"{PAGE}?window={EVIL}").text), "it was made long ago"


def test_a_fresh_one_says_what_to_do_next(world, visitor):
    world.add_recommender()
    world.drift = None
    said = text_of(visitor.get(PAGE))
    assert "nothing yet" in said and "Start a run" in said and "Figures appear when its first version serves." in said


def test_one_whose_run_failed_says_why_nothing_serves(world, visitor):
    world.add_recommender()
    world.add_run("r1", "rejected", reason="auc is 0.4 < 0.6")
    assert "was rejected: auc is 0.4 < 0.6" in text_of(visitor.get(PAGE))


def test_who_may_only_look_has_no_buttons(told, site):
    for role, buttons in ((Role.VIEWER, set()), (Role.OPERATOR, {"run", "rollback"}), (Role.ADMIN, {"run", "rollback", "delete"})):
        someone = Visitor(site, told.holder(role)._headers["Authorization"].removeprefix("Bearer "))
        assert set(re.findall(rf'action="{PAGE}/(\w+)"', someone.get(PAGE).text)) == buttons
    viewer = Visitor(site, told.holder("viewer")._headers["Authorization"].removeprefix("Bearer "))
    for what, fields in (("run", {"mode": "full"}), ("rollback", {}), ("delete", {"typed": "m"})):
        assert viewer.press(f"{PAGE}/{what}", **fields).status_code == 403
    assert "m" in told.recommenders.rows


def test_a_run_is_started_once_however_often_the_button_is_pressed(told, visitor):
    before = set(told.runs.rows)
    for _ in range(2):
        answer = visitor.press(f"{PAGE}/run", mode="warm", reason="it smells", once="k" * 24)
        assert answer.status_code == 303
    (made,) = set(told.runs.rows) - before
    assert answer.headers["location"] == f"/runs/{made}"
    assert (told.runs.rows[made].spec.mode, told.runs.rows[made].spec.cause) == ("warm", "it smells")


def test_a_retraining_is_asked_for(told, visitor):
    assert visitor.press(f"{PAGE}/run", mode="retrain", reason="new data", once="\u00e4").headers["location"] == PAGE
    assert (told.retrainers.get("m").request.verb, told.retrainers.get("m").request.reason) == ("retrain", "new data")


def test_rolling_back_moves_everybody_and_says_what_was_done(told, visitor):
    told.rollouts.rows.pop("r3-rollout")
    told.route(2)
    told.routes.before["m"] = 1
    told.server.versions = frozenset({1, 2})
    answer = visitor.press(f"{PAGE}/rollback", to="1", reason="it smells", once="b" * 24)
    assert (answer.status_code, told.routes.rows["m"].stable) == (303, 1)
    for none in ("x", "\u0663", "9" * 5000):
        assert visitor.press(f"{PAGE}/rollback", to=none, once="c" * 24).status_code == 422
    refused = visitor.press(f"{PAGE}/rollback", to="1", once="d" * 24)
    assert (refused.status_code, "already serves all users" in refused.text) == (409, True)


def test_it_is_deleted_by_whoever_types_its_name(told, visitor):
    assert visitor.press(f"{PAGE}/delete", typed="n").status_code == 422
    assert "m" in told.recommenders.rows
    assert visitor.press(f"{PAGE}/delete", typed="m").headers["location"] == "/"
    assert "m" not in told.recommenders.rows


def test_what_somebody_wrote_stays_text(told, visitor):
    told.routes.past[0] = replace(told.routes.past[0], reason=EVIL, actor=EVIL)
    told.rollouts.rows["r4-rollout"] = replace(told.add_rollout("r4-rollout", "aborted", 2), id=EVIL)
    told.retrainers.past = [HistoryEntry(NOW, "watching", "retraining", EVIL, EVIL)]
    record = told.add_run("r9", "failed", reason=EVIL)
    told.runs.rows["r9"] = replace(record, spec=replace(record.spec, cause=EVIL, by=EVIL))
    answer = visitor.get(PAGE)
    assert answer.status_code == 200
    assert "alert(1)" in answer.text and "<script>alert" not in answer.text


def test_of_many_events_the_newest_have_letters(world):
    specs = [{"at": minute(n).isoformat(), "generation": n + 1, "actor": "ada"} for n in reversed(range(3))]
    runs = [
        {"id": f"r{n}", "created_at": minute(n).isoformat(), "cause": "c", "asked_by": "ada", "mode": "full", "state": "etl", "stages": []}
        for n in reversed(range(40))
    ]
    events = lettered(happened("/recommenders/m", [], runs, [], [], specs), NOW, minute(100))
    marked = [one for one in events if one.letter]
    assert [one.letter for one in marked] == [chr(code) for code in range(ord("Z"), ord("A") - 1, -1)]
    assert marked[0].at == minute(39) and len(events) == 43


def test_an_open_page_asks_more_often_while_something_is_under_way(told, visitor):
    assert 'data-every="2"' in visitor.get(PAGE).text
    told.rollouts.rows.clear()
    assert 'data-every="10"' in visitor.get(PAGE).text


@pytest.mark.parametrize(
    ("empty", "text", "warns"),
    [
        (10, "10.0 % of 100 answers in the last 15m are empty: the filters leave no item.", False),
        (50, "50.0 % of 100 answers in the last 15m are empty: the filters leave no item. At most 20.0 % are allowed.", True),
    ],
)
def test_it_shows_the_share_of_empty_answers(told, visitor, empty, text, warns):
    told.empty = EmptyAnswersLook(EmptyAnswers(100, empty), 0.2)
    answer = visitor.get(PAGE)
    assert text in text_of(answer)
    assert ('<p class="bad text">' in answer.text) == warns
    told.empty = EmptyAnswersLook(EmptyAnswers(10, empty), 0.2)
    assert "are empty" not in text_of(visitor.get(PAGE))
