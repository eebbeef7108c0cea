"""Random streams of events, and the comparison of their counts with a batch count of the same events."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from sqlalchemy import Engine

from services.eventlog.kpis import SqlKpis
from services.eventlog.sql import SqlEventLog
from shared.contracts.events import Impression, Interaction
from shared.domain.earned import sliding, total
from shared.ports import EventLog, HitRate, KpiSource
from shared.testing.event_oracle import Oracle
from shared.testing.event_suite import ATTRIBUTION, LATER, T0, did, minute, shown
from tests.support.sql_rows import empty

KINDS = (None, "click", "purchase", "rating")
CONVERSIONS = {"purchase", "rating"}
BOUNDS = [(T0, LATER), (minute(20), minute(60))]

items = st.lists(st.integers(10, 14), min_size=0, max_size=4).map(tuple)
answers = st.builds(
    lambda n, user, at, version, shows, recommender, **more: shown(
        f"r{n}", minute(at), user=user, version=version, items=shows, recommender=recommender, **more
    ),
    st.integers(0, 15),
    st.integers(1, 2),
    st.integers(0, 90),
    st.integers(1, 2),
    items,
    st.sampled_from(["films", "films", "books"]),
    variant=st.sampled_from(["stable", "candidate"]),
    fallback=st.sampled_from([None, None, "unknown user"]),
    slices=st.sets(st.sampled_from(["germany", "young"])).map(sorted).map(tuple),
)
reactions = st.builds(
    lambda user, item, at, **more: did(item, minute(at), user=user, **more),
    st.integers(1, 2),
    st.integers(10, 14),
    st.integers(-5, 130),
    id=st.one_of(st.none(), st.integers(0, 9999).map(lambda n: f"e{n}")),
    request_id=st.one_of(st.none(), st.integers(0, 17).map(lambda n: f"r{n}")),
    kind=st.sampled_from(KINDS),
    revenue=st.one_of(st.none(), st.sampled_from([0.1, 0.2, 0.7, -0.3, 1e8])),
    recommender=st.sampled_from(["films", "films", "books"]),
)


def first_of_each(given: list[Any], key: str) -> list[Any]:
    """Bodies that differ under one id are another test's: here an id has one body."""
    found: dict[Any, Any] = {}
    for n, one in enumerate(given):
        id = getattr(one, key)
        found.setdefault(n if id is None else (one.recommender if key == "id" else "", id), one)
    return list(found.values())


def send(log: EventLog, stream: list[Impression | Interaction], cuts: random.Random) -> None:
    """In calls of any size, each of one kind."""
    while stream:
        some, stream = stream[: (size := cuts.randint(1, 6))], stream[size:]
        log.impressions([one for one in some if isinstance(one, Impression)])
        done = [one for one in some if isinstance(one, Interaction)]
        log.interactions(done, [True] * len(done), ATTRIBUTION)


def check(kpis: KpiSource, oracle: Oracle) -> None:
    for recommender, version in (("films", 1), ("films", 2), ("books", 1)):
        for since, until in BOUNDS:
            for attribution in (ATTRIBUTION, timedelta(minutes=5), timedelta(days=1)):
                found = kpis.earned(recommender, version, since, until, attribution, CONVERSIONS)
                expected = oracle.earned(recommender, version, since, until, attribution, CONVERSIONS)
                assert found == expected
                assert kpis.hit_rate(recommender, version, since, until, attribution) == HitRate(expected.answers, expected.hits)
                parts = kpis.parts(recommender, version, since, until, attribution, CONVERSIONS)
                assert parts == oracle.parts(recommender, version, since, until, attribution, CONVERSIONS)
                assert total(parts.values()) == expected
            assert kpis.showings(recommender, version, since, until, 3) == oracle.showings(recommender, version, since, until, 3)
        check_windows(kpis, oracle, recommender, version)
        assert kpis.liked(recommender, minute(60), 1000) == oracle.liked(recommender, minute(60))


def check_windows(kpis: KpiSource, oracle: Oracle, recommender: str, version: int) -> None:
    """Windows of 25 minutes that end 5 minutes apart."""
    every, width = timedelta(minutes=5), timedelta(minutes=25)
    ends = [minute(n) for n in range(30, 95, 5)]
    steps = kpis.steps(recommender, version, ends[0] - width, ends[-1], every, ATTRIBUTION, CONVERSIONS)
    found = sliding(steps, width // every, len(ends))
    assert found == [oracle.window(recommender, version, end, width, ATTRIBUTION, CONVERSIONS) for end in ends]


streams = given(
    shows=st.lists(answers, max_size=16),
    done=st.lists(reactions, max_size=24),
    doubled=st.floats(0, 1),
    cuts=st.randoms(use_true_random=False),
)
QUIET = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]


def stream_of(shows: list[Impression], done: list[Interaction], doubled: float, cuts: random.Random) -> list[Impression | Interaction]:
    once: list[Impression | Interaction] = [*shows, *done]
    again = [one for one in once if not (isinstance(one, Interaction) and one.id is None) and cuts.random() < doubled]
    stream = once + again
    cuts.shuffle(stream)
    return stream


def count_exactly(engine: Engine, shows: list[Impression], done: list[Interaction], doubled: float, cuts: random.Random) -> None:
    """Sends the events to an empty database in a drawn order, and compares every count with the batch count."""
    empty(engine, "impressions", "interactions")
    shows, done = first_of_each(shows, "request_id"), first_of_each(done, "id")
    send(SqlEventLog(engine), stream_of(shows, done, doubled, cuts), cuts)
    check(SqlKpis(engine), Oracle(shows, done, ATTRIBUTION))


def write_from_many_threads(engine: Engine, impressions: int, interactions: int) -> None:
    """Each event is sent by two of six threads, and answers come after their reactions as often as before them."""
    empty(engine, "impressions", "interactions")
    rng = random.Random(7)
    shows = [
        shown(f"r{n}", minute(n * 57 / impressions), user=n % 9, version=1 + n % 2, items=(10 + n % 3, 13, 14)) for n in range(impressions)
    ]
    done = [
        did(
            rng.randint(10, 14),
            minute(rng.uniform(0, 80)),
            user=rng.randrange(9),
            id=f"e{n}",
            request_id=f"r{rng.randrange(impressions)}" if n % 2 else None,
            kind=rng.choice(["click", "purchase"]),
            revenue=0.1,
        )
        for n in range(interactions)
    ]
    log = SqlEventLog(engine)
    parts: list[list[Impression | Interaction]] = []
    for thread in range(6):
        part: list[Impression | Interaction] = [one for n, one in enumerate([*shows, *done]) if thread in (n % 6, (n + 1) % 6)]
        random.Random(thread).shuffle(part)
        parts.append(part)
    with ThreadPoolExecutor(6) as pool:
        for future in [pool.submit(send, log, part, random.Random(n)) for n, part in enumerate(parts)]:
            future.result()
    check(SqlKpis(engine), Oracle(shows, done, ATTRIBUTION))
