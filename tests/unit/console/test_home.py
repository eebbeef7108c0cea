"""The page of all recommenders, and how anything is shown: as text."""

from __future__ import annotations

import html
import re
from datetime import timedelta

from services.console.api import Api
from services.console.status_badges import light
from services.monitor.kpi_history import KpiPeriod, VersionHistories
from shared.contracts.spec import RecommenderSpec
from shared.domain.sequential_test import VariantSample
from tests.support.api_world import NOW, document

MINUTE = timedelta(minutes=1)


def test_without_recommenders_it_says_what_to_do(visitor):
    assert "eyas apply spec.yaml" in visitor.get("/").text


def test_each_recommender_has_a_line(world, visitor):
    world.add_recommender()
    text = visitor.get("/").text
    assert 'href="/recommenders/m"' in text
    assert "none yet" in text


def test_an_open_page_gets_what_is_new_without_the_frame(world, visitor):
    world.add_recommender()
    whole, part = visitor.get("/"), visitor.get("/", {"X-Eyas-Live": "1"})
    assert 'id="recommenders"' in part.text
    assert "<header" in whole.text and "<header" not in part.text


def test_a_page_that_fails_says_so_and_no_more(world, visitor, monkeypatch):
    def broken(name):
        raise RuntimeError("the secret of the house")

    world.add_recommender()
    monkeypatch.setattr("services.console.pages.home.light", broken)
    answer = visitor.get("/")
    assert answer.status_code == 500
    assert "secret" not in answer.text


def test_names_are_found_by_how_they_begin(world, visitor):
    for name in ("films", "film-club", "music"):
        world.recommenders.put(RecommenderSpec.model_validate(document(name=name)), NOW, "ada")
    text = visitor.get("/?prefix=film").text
    assert [name for name in ("films", "film-club", "music") if f'href="/recommenders/{name}"' in text] == ["films", "film-club"]
    assert 'value="film"' in text
    nothing = visitor.get('/?prefix="><script>alert(1)</script>')
    assert "has a name that begins with this" in nothing.text and "<script>alert" not in nothing.text


def test_many_come_in_pages_that_keep_what_was_looked_for(world, visitor):
    for number in range(45):
        world.recommenders.put(RecommenderSpec.model_validate(document(name=f"films-{number:02d}")), NOW, "ada")
    world.add_recommender()
    seen, path = [], "/?prefix=films"
    while path:
        text = visitor.get(path).text
        seen += re.findall(r'href="/recommenders/([\w-]+)"', text)
        found = re.search(r'<a rel="next" href="([^"]+)"', text)
        path = html.unescape(found.group(1)) if found else None
    assert seen == [f"films-{number:02d}" for number in range(45)]


def test_a_line_shows_what_the_serving_version_earned_last(world, visitor):
    world.add_recommender()
    world.route(2)
    lines = {
        1: [KpiPeriod(NOW, NOW + MINUTE, VariantSample(9, 9.0, 9.0, 9, 9, 9))],
        2: [KpiPeriod(NOW, NOW + MINUTE, VariantSample(8, 2.0, 2.0, 8, 2, 2))],
    }
    world.life = VersionHistories(NOW, NOW + MINUTE, MINUTE, NOW, lines, 0)
    text = visitor.get("/").text
    assert "25.0 %" in text and "100.0 %" not in text and "version 2" in text
    assert "95 % interval: 7.1 % to 59.1 %, 8 users" in text


def test_the_light_says_what_is_known_of_drift_and_why():
    assert light({"state": "unknown", "said": ["because"]})["said"] == "not known yet"
    assert light({"state": "steady", "said": ["because"]})["said"] == "no drift"
    assert light({"state": "drifting", "said": ["because", "of this"]}) == {"said": "drift", "tone": "bad", "why": "because; of this"}


def test_what_is_under_way_is_a_link_each(world, visitor):
    world.add_recommender()
    world.add_run(state="train")
    world.add_run("r2", state="failed")
    text = visitor.get("/").text
    assert 'href="/runs/r1"' in text and 'href="/runs/r2"' not in text


def test_one_page_is_one_question(world, visitor, monkeypatch):
    asked, ask = [], Api.ask

    async def counted(self, method, path, *more, **words):
        asked.append(path)
        return await ask(self, method, path, *more, **words)

    monkeypatch.setattr(Api, "ask", counted)
    for number in range(15):
        world.recommenders.put(RecommenderSpec.model_validate(document(name=f"films-{number:02d}")), NOW, "ada")
    visitor.get("/")
    assert asked.count("/v1/overview") == 1 and len(asked) <= 3


def test_one_users_luck_is_no_hit_rate(world, visitor):
    world.add_recommender()
    world.add_version(1)
    world.route(1)
    many, single = VariantSample(40, 12.0, 4.0, 50, 14, 9), VariantSample(1, 0.0, 0.0, 1, 0, 0)
    minutes = [NOW + timedelta(minutes=n) for n in range(3)]
    stretches = [KpiPeriod(minutes[0], minutes[1], many), KpiPeriod(minutes[1], minutes[2], single)]
    world.life = VersionHistories(NOW, minutes[2], timedelta(minutes=1), minutes[2], {1: stretches}, 0)
    text = visitor.get("/").text
    assert "30.0 %" in text and "40 users" in text
    assert "0.0 %</span>" not in text.replace("30.0 %", "")
