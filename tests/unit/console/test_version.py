"""A version's page: what it proved, where it served, what it was made of, and its tags."""

from __future__ import annotations

import copy
import json
from dataclasses import replace

import pytest

from services.api.examples import EXAMPLES
from shared.contracts.stage import File
from shared.domain.access import Role
from shared.testing.records import LINEAGE
from tests.support.api_world import NOW
from tests.unit.console.conftest import Visitor
from tests.unit.console.test_recommender import EVIL, entry, text_of

pytestmark = pytest.mark.requirement("C-01")

PAGE = "/recommenders/m/versions/1"


def carded(world, **changed):
    card = copy.deepcopy(EXAMPLES["get_card"]["answer"]) | changed
    world.blobs["a" * 64] = json.dumps(card).encode()
    world.add_version(1, "r1", {"model_card.json": File(sha256="a" * 64, size=1536)})
    return card


@pytest.fixture
def made(world):
    world.add_recommender()
    world.card = carded(world)
    world.add_version(2, "r2")
    world.add_run("r1", "registered", ("etl",), reason="all gates passed")
    world.add_rollout("r1-rollout", "promoted", 1, reason="harm is excluded")
    world.route(2)
    world.routes.before["m"] = 1
    world.routes.past = [entry(1, NOW, NOW, reason="the first one"), entry(2, NOW, None, stable=2)]
    return world


def test_it_says_what_it_proved_where_it_served_and_what_it_was_made_of(made, visitor):
    answer = visitor.get(PAGE)
    said = text_of(answer)
    gate = made.card["gates"][0]
    assert f"{gate['gate']} {gate['verdict']} {gate['reason']}" in said
    assert "it is the previous version" in said
    assert "Rollout promoted harm is excluded" in said and "the first one" in said
    assert 'href="/runs/r1"' in answer.text and "model_card.json 1.5 KiB" in said
    assert "refit (served): 99,000 rows" in said and "candidate (offline metrics): 80,000 rows" in said
    for name, values in made.card["metrics"].items():
        assert name in said and values


def test_an_alias_leads_to_the_version(made, visitor):
    assert "version 2" in text_of(visitor.get("/recommenders/m/versions/serving"))
    assert visitor.get("/recommenders/m/versions/9").status_code == 404


def test_one_without_a_card_is_shown_with_what_is_known(made, visitor):
    said = text_of(visitor.get("/recommenders/m/versions/2"))
    assert "serving It serves" in said and "It has no model card" in said and "hr@10 0.4" in said


def test_a_collected_one_says_so_and_has_no_buttons(made, visitor):
    made.registry.gone[1] = NOW
    answer = visitor.get(PAGE)
    assert "it cannot serve again" in text_of(answer) and "the card was deleted with its files" in text_of(answer)
    assert "/rollback" not in answer.text and "/tag" not in answer.text


def test_tags_are_put_on_and_taken_off(made, visitor):
    assert visitor.press(f"{PAGE}/tag", tag="good").headers["location"] == PAGE
    assert made.registry.given == {"good": 1}
    assert "Tags: good" in text_of(visitor.get(PAGE))
    refused = visitor.press(f"{PAGE}/tag", tag=EVIL)
    assert (refused.status_code, "<script>alert" in refused.text) == (422, False)
    assert visitor.press(f"{PAGE}/tag", tag="").status_code == 422
    visitor.press(f"{PAGE}/untag", tag="good")
    assert made.registry.given == {}


def test_everybody_is_moved_to_it_by_the_recommenders_own_button(made, visitor):
    made.server.versions = frozenset({1, 2})
    assert 'action="/recommenders/m/rollback"' in visitor.get(PAGE).text
    assert visitor.press("/recommenders/m/rollback", to="1", reason="it was better", once="v" * 24).status_code == 303
    assert made.routes.rows["m"].stable == 1
    assert "/rollback" not in visitor.get(PAGE).text


@pytest.mark.requirement("C-05")
def test_it_is_rolled_out_by_a_button_that_asks_why(made, visitor):
    assert f'action="{PAGE}/rollout"' in visitor.get(PAGE).text
    assert "A canary by the current spec starts, as after a run." in text_of(visitor.get(PAGE))
    answer = visitor.press(f"{PAGE}/rollout", reason=f"it was the {EVIL}", once="v" * 24)
    [(id, record)] = [(id, one) for id, one in made.rollouts.rows.items() if id != "r1-rollout"]
    assert (answer.status_code, answer.headers["location"], record.spec.version) == (303, f"/rollouts/{id}", 1)
    assert visitor.press(f"{PAGE}/rollout", reason=f"it was the {EVIL}", once="v" * 24).headers["location"] == f"/rollouts/{id}"
    assert len(made.rollouts.rows) == 2, "the same form, sent twice"
    shown = visitor.get(f"/rollouts/{id}")
    assert f"by owner: it was the {EVIL}" in text_of(shown) and "<script>alert" not in shown.text
    served = visitor.get(PAGE)
    assert f'href="/rollouts/{id}"' in served.text and "start by owner" in text_of(served)
    assert f"{PAGE}/rollout" not in served.text, "one of it is under way"


@pytest.mark.requirement("C-05")
def test_beside_another_rollout_it_says_behind_which_it_waits(made, visitor):
    made.add_version(3, "r3")
    made.add_rollout("r3-rollout", "paused", 3)
    shown = visitor.get(PAGE)
    assert "when the rollout of version 3 has ended" in text_of(shown) and 'href="/rollouts/r3-rollout"' in shown.text
    assert f"{PAGE}/rollout" in shown.text
    assert "/versions/3/rollout" not in visitor.get("/recommenders/m/versions/3").text


@pytest.mark.requirement("C-05")
def test_what_the_api_would_refuse_is_not_offered(made, visitor):
    assert "/versions/2/rollout" not in visitor.get("/recommenders/m/versions/2").text, "it serves"
    made.registry.gone[1] = NOW
    assert f"{PAGE}/rollout" not in visitor.get(PAGE).text
    made.registry.gone.clear()
    del made.routes.rows["m"]
    assert f"{PAGE}/rollout" not in visitor.get(PAGE).text, "it was never proven, and nothing serves"
    made.registry.rows[0] = replace(made.registry.rows[0], metrics={"parity": 1e-7})
    assert "all users get it as soon as it answers, without a canary" in text_of(visitor.get(PAGE))
    assert "/rollback" not in visitor.get(PAGE).text


@pytest.mark.requirement("C-05")
def test_what_is_asked_all_the_same_is_refused_in_the_apis_words(made, visitor):
    refused = visitor.press("/recommenders/m/versions/2/rollout", once="w" * 24)
    assert refused.status_code == 409 and "is already the stable version" in text_of(refused)
    for wrong in ("serving", "0", "٢", "9" * 10, "9" * 5000):
        assert visitor.press(f"/recommenders/m/versions/{wrong}/rollout", once="x" * 24).status_code == 422
    assert list(made.rollouts.rows) == ["r1-rollout"]


def test_who_may_only_look_has_no_buttons(made, site):
    viewer = Visitor(site, made.holder(Role.VIEWER)._headers["Authorization"].removeprefix("Bearer "))
    assert f'action="{PAGE}' not in viewer.get(PAGE).text
    assert viewer.press(f"{PAGE}/tag", tag="good").status_code == 403
    assert viewer.press(f"{PAGE}/rollout", once="v" * 24).status_code == 403
    assert made.registry.given == {}


def test_what_somebody_wrote_stays_text(world, visitor):
    world.add_recommender()
    gates = [{"gate": EVIL, "verdict": EVIL, "reason": EVIL}]
    carded(world, gates=gates, metrics={EVIL: {"candidate": 0.5}, f"hr{{{EVIL}}}": {"candidate": 0.5}})
    world.registry.rows[0] = replace(world.registry.rows[0], lineage=replace(LINEAGE, cause=EVIL, code=EVIL, asked_by=EVIL), digest=EVIL)
    answer = visitor.get(PAGE)
    assert answer.status_code == 200
    assert "alert(1)" in answer.text and "<script>alert" not in answer.text
