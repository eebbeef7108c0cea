"""A rollout's page answers why, and shows the buttons that can be pressed."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from services.console.rollout_summary import needs, sentence
from shared.domain.evidence_history import LookBounds
from shared.domain.gate import Verdict
from shared.domain.sequential_test import Judgement, VariantSample
from shared.domain.step_analysis import AnswerSummary, CheckResult, StepReport
from tests.support.api_world import NOW, stored_document
from tests.unit.console.conftest import Visitor

pytestmark = pytest.mark.requirement("C-01")

EVIL = '<script>alert("x")</script>'
FEWER = "the candidate earns fewer hits: hit rate 0.208 against 0.400 (-48.0%, confidence interval -70.0% to -20.0%)"


def looks(count=3, step=0):
    return tuple(
        LookBounds(NOW + timedelta(seconds=one), step, 2, 100 * one, 20 * one, "inconclusive", -0.4, -0.9 + one / 20, 0.5 - one / 10)
        for one in range(1, count + 1)
    )


def report(verdict=Verdict.FAIL, reason=FEWER, step=0, weight=0.05, users=312, **changes):
    judged = Judgement(verdict, reason, -0.48, -0.7, -0.2)
    checks = (CheckResult("split", Judgement(Verdict.PASS, "as asked")), CheckResult("errors", Judgement(Verdict.PASS, f"kept {EVIL}")))
    fields = {"checks": checks, "answered": (AnswerSummary(900, 9, 0.001, 0.004), AnswerSummary(400, 0, 0.002, 0.0071))} | changes
    stable, candidate = VariantSample(2800, 1120, 1120, 2900, 1160, 1120), VariantSample(users, 65, 65, 330, 70, 65)
    return StepReport(step, weight, NOW, stable, candidate, judged, verdict=verdict, reason=reason, **fields)


def add(world, state="rolled_back", reason=FEWER, **status):
    world.add_recommender()
    given = {"step": 0, "reports": (report(),), "looks": looks()} | status
    return world.add_rollout("o1", state, version=3, reason=reason, **given)


def test_a_rolled_back_version_explains_itself_in_one_sentence(world, visitor):
    add(world)
    text = visitor.get("/rollouts/o1").text
    assert "Version 3 earned 48 % fewer hits than version 2 in its canary at 5 %: rolled back after 312 users." in text
    assert FEWER in text
    assert "7.1 ms" in text or "7 ms" in text
    assert "1.0 %" in text, "the share of errors"
    assert "20.8 %" in text


def test_the_evidence_is_drawn_with_its_numbers_beside(world, visitor):
    add(world)
    text = visitor.get("/rollouts/o1").text
    assert 'role="img"' in text and "after each of 3 looks" in text
    assert "-75.0 %" in text and "+20.0 %" in text
    assert "Numbers of 3 looks" in text


def test_a_guardrail_that_broke_is_named(world, visitor):
    broken = "latency_p99 < 2x is broken: p99 is 9 ms"
    checks = (CheckResult("latency_p99", Judgement(Verdict.FAIL, broken)),)
    add(world, reason=broken, reports=(report(Verdict.FAIL, broken, checks=checks),))
    assert (
        "Version 3 broke the guardrail latency p99 in its canary at 5 %: rolled back after 312 users." in visitor.get("/rollouts/o1").text
    )


def test_one_that_never_answered_says_why(world, visitor):
    add(world, reason="version 3 cannot be loaded: no such file", reports=(), looks=(), step=-1)
    assert "Version 3 was rolled back: version 3 cannot be loaded: no such file." in visitor.get("/rollouts/o1").text


def test_a_fraction_of_a_percent_is_said_as_it_was_asked_for(world, visitor):
    asked = {"steps": ["0.5%", "2.5%"], "analysis": {"max_harm": "0.4%"}}
    world.add_recommender()
    record = world.add_rollout("o1", "canary", version=3, reason="not yet", step=0)
    world.rollouts.rows["o1"] = replace(record, spec=replace(record.spec, document=stored_document(rollout=asked)))
    text = visitor.get("/rollouts/o1").text
    assert "Version 3 serves 0.5 % of the users" in text
    assert "2.5 %" in text and " 0 %" not in text


def test_a_reason_that_ends_in_a_full_stop_ends_the_sentence_once():
    assert sentence({"kind": "rollback", "state": "promoted", "version": 2, "reason": "wrong films."}) == (
        "All users are back on version 2: wrong films."
    )


def test_what_a_step_waits_for(world, visitor):
    reports = (report(Verdict.INCONCLUSIVE, "not yet", users=12),)
    add(world, "canary", "not yet", reports=reports, step_since=NOW, since=NOW)
    one = world.client.get("/v1/rollouts/o1").json()
    said = needs(one, datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=5))
    least = one["plan"]["steps"][0]["min_users"]
    assert said[0].startswith(f"{least - 12:,} more users with a closed attribution window in the smaller variant")
    assert "left; then the rollout pauses without a verdict" in said[-1]
    one["plan"]["steps"][0]["min"] = 60
    assert "1 min more: the shortest duration of this step" in needs(one, NOW)
    one["reports"][0]["since"] = None  # of an older report, as the API has it
    assert not any("the shortest duration of this step" in need for need in needs(one, NOW))
    assert "Open conditions" in visitor.get("/rollouts/o1").text
    assert 'data-every="2"' in visitor.get("/rollouts/o1").text


@pytest.mark.parametrize(
    "state, shown, hidden",
    [
        ("canary", {"Pause", "Skip to the next step", "Promote", "Abort"}, {"Resume", "Roll back"}),
        ("paused", {"Resume", "Promote", "Abort"}, {"Pause"}),
        ("pending", {"Abort"}, {"Pause", "Promote", "Resume"}),
        ("rolled_back", set(), {"Pause", "Promote", "Resume", "Abort", "Roll back"}),
    ],
)
def test_buttons_are_those_that_can_be_pressed(world, visitor, state, shown, hidden):
    add(world, state, step_since=NOW, since=NOW)
    text = visitor.get("/rollouts/o1").text
    assert all(f">{one}…<" in text for one in shown)
    assert not any(f">{one}…<" in text for one in hidden)


def test_a_viewer_sees_no_buttons_and_is_refused(world, site):
    add(world, "canary", step_since=NOW, since=NOW)
    viewer = Visitor(site, world.holder("viewer")._headers["Authorization"].removeprefix("Bearer "))
    assert "Abort" not in viewer.get("/rollouts/o1").text
    assert viewer.press("/rollouts/o1/abort", once="x").status_code == 403
    assert world.rollouts.get("o1").request is None


def test_a_button_asks_the_api_with_its_reason(world, visitor):
    add(world, "canary", step_since=NOW, since=NOW)
    answer = visitor.press("/rollouts/o1/pause", once="a-key-of-the-form", reason="lunch")
    assert (answer.status_code, answer.headers["location"]) == (303, "/rollouts/o1")
    request = world.rollouts.get("o1").request
    assert (request.verb, request.reason) == ("pause", "lunch")
    assert "Pending request: pause" in visitor.get("/rollouts/o1").text


@pytest.mark.parametrize("verb", ["nonsense", "..", "pause%2Fx"])
def test_another_verb_is_no_button(world, visitor, verb):
    add(world, "canary", step_since=NOW, since=NOW)
    assert visitor.press(f"/rollouts/o1/{verb}", once="x").status_code in (404, 405, 422)
    assert world.rollouts.get("o1").request is None


def test_the_version_that_serves_can_be_rolled_back(world, visitor):
    add(world, "promoted", "harm above 10.0% is excluded", reports=(report(Verdict.PASS, "harm above 10.0% is excluded"),))
    world.route(3)
    world.server.versions, world.routes.before = frozenset({2, 3}), {"m": 2}
    assert ">Roll back…<" in visitor.get("/rollouts/o1").text
    answer = visitor.press("/rollouts/o1/rollback", once="k", reason="too slow")
    assert answer.status_code == 303
    assert world.routes.rows["m"].stable == 2
    assert ">Roll back…<" not in visitor.get("/rollouts/o1").text


@pytest.mark.requirement("C-05")
def test_it_says_who_started_it_and_why(world, visitor):
    add(world)
    assert "by the run that registered the version" in visitor.get("/rollouts/o1").text
    world.add_version(4, "r4")
    world.route(2)
    asked = world.holder("operator").post("/v1/recommenders/m/rollouts", json={"version": 4, "reason": "the outage is over"}).json()
    assert "by holder-1: the outage is over" in visitor.get(f"/rollouts/{asked['id']}").text
    world.server.versions = frozenset({2})
    back = world.client.post("/v1/recommenders/m:rollback", json={"to": 4}).json()["rollout"]
    assert "by owner</dd>" in visitor.get(f"/rollouts/{back}").text


def test_what_people_and_data_say_stays_text(world, visitor):
    add(world, "aborted", f"abort by x: {EVIL}")
    for path in ("/rollouts/o1", "/recommenders/m/rollouts"):
        text = visitor.get(path).text
        assert EVIL not in text and "&lt;script&gt;" in text


def test_the_list_says_why_in_each_line(world, visitor):
    add(world)
    text = visitor.get("/recommenders/m/rollouts").text
    assert 'href="/rollouts/o1"' in text and "rolled back after 312 users" in text


def test_without_rollouts_it_says_what_to_do(world, visitor):
    world.add_recommender()
    assert "eyas run m" in visitor.get("/recommenders/m/rollouts").text
    assert visitor.get("/recommenders/nobody/rollouts").status_code == 404
    assert visitor.get("/rollouts/nothing").status_code == 404


@pytest.mark.parametrize("state", ["pending", "loading", "shadow", "canary", "paused", "promoted", "rolled_back", "aborted"])
def test_every_state_has_a_sentence(world, visitor, state):
    add(world, state, reason="because", reports=(), looks=(), step=-1 if state in ("pending", "loading", "shadow") else 0)
    said = sentence(world.client.get("/v1/rollouts/o1").json())
    assert "because" in said and said.endswith(".")
    assert visitor.get("/rollouts/o1").status_code == 200
