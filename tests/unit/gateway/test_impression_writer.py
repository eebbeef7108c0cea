"""Answers without an event log: they go out, their impressions wait, and nothing counts twice or is lost in silence."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from services.gateway.impression_writer import ImpressionWriter
from shared.contracts.events import Interaction
from shared.domain.errors import Unavailable
from shared.domain.route import Route
from shared.telemetry import metrics
from shared.testing.event_suite import T0, shown
from shared.testing.waiting import wait_for


class Log:
    """Counts its calls; may be away, hang, or choke on one answer."""

    def __init__(self) -> None:
        self.shown = {}
        self.away = False
        self.hangs: threading.Event | None = None
        self.chokes_on: str | None = None
        self.calls = 0
        self.looks = 0

    def impressions(self, impressions):
        self.calls += 1
        if self.hangs is not None:
            self.hangs.wait(30)
        if self.away:
            raise Unavailable("nobody is there")
        if any(one.request_id == self.chokes_on for one in impressions):
            raise ValueError("a lump")
        self.shown.update((impression.request_id, impression) for impression in impressions)

    def seen_items(self, recommender, users, since=None, limit=1000):
        self.looks += 1
        if self.hangs is not None:
            self.hangs.wait(30)
        if self.away:
            raise Unavailable("nobody is there")
        return {user: {10: T0} for user in users}


@pytest.fixture
def log():
    made = Log()
    yield made
    if made.hangs is not None:
        made.hangs.set()


@pytest.fixture
def journal(log):
    made = ImpressionWriter(log, patience=0.05, pause=0.01)
    yield made
    log.away = False
    made.close()


@pytest.mark.requirement("G-13")
def test_an_impression_is_durable_before_its_answer_goes_out(log):
    journal = ImpressionWriter(log, patience=60)
    journal.write(shown("a"))
    assert list(log.shown) == ["a"]
    assert not journal.behind
    journal.close()


@pytest.mark.requirement("C-05")
def test_while_the_log_is_away_impressions_wait_in_order_and_are_written_once_it_is_back(log, journal, caplog):
    log.away = True
    for n in range(5):
        journal.write(shown(f"a{n}"))
    assert journal.behind
    assert log.shown == {}
    log.away = False
    wait_for(lambda: not journal.behind)
    assert list(log.shown) == [f"a{n}" for n in range(5)]
    assert len([one for one in caplog.records if one.levelname == "ERROR"]) == 1


def test_nobody_waits_for_a_log_that_is_known_to_be_away(log, journal):
    log.away = True
    journal.write(shown("a"))
    log.hangs = threading.Event()
    journal._patience = 30.0
    journal.write(shown("b"))
    assert journal.seen_items("films", [1]) == {}
    log.away = False
    log.hangs.set()
    wait_for(lambda: len(log.shown) == 2)
    wait_for(lambda: journal.seen_items("films", [1]) == {1: {10: T0}})


def test_a_log_that_hangs_holds_up_an_answer_for_a_moment_only(log, journal):
    log.hangs = threading.Event()
    assert journal.seen_items("films", [1]) == {}
    journal.write(shown("a"))
    assert journal.behind
    log.hangs.set()
    wait_for(lambda: list(log.shown) == ["a"])
    wait_for(lambda: not journal.behind)


def test_liked_items_that_nobody_could_look_up_are_counted(log, journal):
    def count():
        return metrics.UNFILTERED.labels("films")._value.get()

    before = count()
    assert journal.seen_items("films", [1]) == {1: {10: T0}}
    log.away = True
    for _ in range(3):
        assert journal.seen_items("films", [1]) == {}
    assert (count() - before, log.looks) == (3, 2)


def test_only_so_many_wait_and_the_oldest_are_lost_and_counted(log):
    def count():
        return metrics.LOST.labels("films")._value.get()

    journal, before = ImpressionWriter(log, patience=0.01, pause=0.01, capacity=13 * 3), count()
    log.away = True
    for n in range(5):
        journal.write(shown(f"a{n}", items=(1, 2, 3)))
    assert count() - before == 2
    log.away = False
    wait_for(lambda: not journal.behind)
    assert list(log.shown) == ["a2", "a3", "a4"]
    journal.close()


def test_an_answer_that_cannot_be_stored_holds_up_no_other(log, journal, caplog):
    log.away = True
    for name in ("a", "b", "c"):
        journal.write(shown(name))
    log.chokes_on, log.away = "b", False
    wait_for(lambda: not journal.behind)
    assert list(log.shown) == ["a", "c"]
    assert "impression: storing failed request=b" in caplog.text


def test_what_comes_at_once_is_written_together_and_all_of_it(log):
    journal = ImpressionWriter(log, patience=60)
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda n: journal.write(shown(f"a{n}")), range(800)))
    assert len(log.shown) == 800
    assert log.calls <= 800
    journal.close()


def test_closing_writes_what_still_waits(log):
    journal = ImpressionWriter(log, patience=0.01, pause=60)
    log.away = True
    journal.write(shown("a"))
    wait_for(lambda: log.calls == 1)
    log.away = False
    journal.close()
    assert list(log.shown) == ["a"]


def test_closing_says_what_was_lost(log, caplog):
    journal = ImpressionWriter(log, patience=0.01, pause=60)
    log.away = True
    journal.write(shown("a"))
    journal.close()
    assert "event log: impressions are lost at shutdown impressions=1" in caplog.text


@pytest.mark.requirement("C-05")
def test_a_gateway_that_lost_routes_and_event_log_goes_on_with_its_last_generation(world):
    world.routes["m"] = Route(1, generation=1)
    gateway = world.gateway()
    gateway.refresh()
    world.store_fails = world.log_fails = True
    world.clock.pass_by(hours=1)
    gateway.refresh()
    answers = [gateway.recommend("m", user) for user in (1, 2, 99)]
    assert [(one.version, one.fallback) for one in answers] == [(1, None), (1, None), (1, "unknown user")]
    with pytest.raises(Unavailable, match="is away"):
        gateway.record([Interaction(recommender="m", user=1, item=10)])
    world.store_fails = world.log_fails = False
    wait_for(lambda: len(world.shown) == 3)
    assert [one.request_id for one in world.shown] == [one.request_id for one in answers]
    wait_for(lambda: not gateway._journal.behind)
    assert gateway.record([Interaction(recommender="m", user=1, item=10)]).accepted == 1
