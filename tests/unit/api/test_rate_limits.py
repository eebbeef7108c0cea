"""Rate limits: token buckets against a simulation of them, and what the API refuses by them."""

from __future__ import annotations

import json
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.api.rate_limits import BULK, BURST, FREE, HEAVY, RUN, WRITE, Buckets, RateLimit, RateLimits, TooFast
from shared.telemetry import metrics
from tests.support.api_world import World, document

pytestmark = pytest.mark.requirement("U-13")


class Clock:
    time = 1_000.0

    def __call__(self):
        return self.time


class Level:
    """A bucket as it is usually described: it holds tokens, and is filled as time goes by."""

    def __init__(self, per_second, burst, now):
        self.per_second, self.most = Fraction(per_second), Fraction(per_second * burst)
        self.tokens, self.now = self.most, Fraction(now)

    def spend(self, cost, now):
        self.tokens = min(self.most, self.tokens + (Fraction(now) - self.now) * self.per_second)
        self.now = Fraction(now)
        wanted = min(Fraction(cost), self.most)
        if wanted > self.tokens:
            return (wanted - self.tokens) / self.per_second
        self.tokens -= wanted
        return Fraction(0)


@given(
    per_second=st.sampled_from([0.5, 1, 4, 32]),
    burst=st.sampled_from([1, 2, 8]),
    requests=st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 64), st.integers(1, 40)), max_size=60),
)
def test_buckets_decide_as_the_simulation_does(per_second, burst, requests):
    """Times are eighths of a second and rates are powers of two, so that floats are exact."""
    clock = Clock()
    buckets = Buckets(per_second, burst, clock)
    levels = {key: Level(per_second, burst, clock.time) for key in "ab"}
    for key, eighths, cost in requests:
        clock.time += eighths / 8
        assert buckets.spend(key, cost) == levels[key].spend(cost, clock.time)


def test_who_waits_as_long_as_it_is_told_passes_and_not_before():
    clock = Clock()
    buckets = Buckets(4, 2, clock)
    assert [buckets.spend("a", 1) for _ in range(8)] == [0] * 8
    assert buckets.wait("a") == buckets.spend("a", 1) == 0.25
    clock.time += 0.125
    assert buckets.wait("a") == buckets.spend("a", 1) == 0.125
    clock.time += 0.125
    assert (buckets.wait("a"), buckets.spend("a", 1)) == (0, 0)


def test_what_costs_more_than_a_bucket_holds_passes_when_it_is_full():
    clock = Clock()
    buckets = Buckets(1, 5, clock)
    assert buckets.spend("a", 1_000) == 0
    assert buckets.spend("a", 1_000) == 5
    clock.time += 5
    assert buckets.spend("a", 1_000) == 0


def test_a_bucket_that_holds_less_than_a_unit_lets_one_through_when_it_is_full():
    clock = Clock()
    buckets = Buckets(0.05, 10, clock)
    assert (buckets.wait("a"), buckets.spend("a", 1)) == (0, 0)
    assert buckets.wait("a") == buckets.spend("a", 1) == 10


def test_the_number_of_buckets_is_bounded_and_an_empty_one_is_not_forgotten():
    clock = Clock()
    buckets = Buckets(1, 10, clock, most=100)
    assert buckets.spend("hungry", 10) == 0
    for number in range(1_000):
        buckets.spend(f"k{number}", 1)
        assert len(buckets) <= 100
    assert buckets.spend("hungry", 1) == 1


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def limited(clock):
    """An API with small budgets: 20 units of control (a second fills 1), 50 online, 100 a recommender, 10 failures."""

    def make(**rates):
        return World(limits=RateLimits(RateLimit(**rates), clock))

    return make


def counted(limit):
    return metrics.LIMITED.labels(limit)._value.get()


def test_writes_above_the_rate_are_refused_before_they_are_entered_anywhere(limited, clock, problem):
    world = limited(control=1)
    holder, other = world.holder("operator"), world.holder("operator")
    world.add_recommender()
    before = counted("control")
    for _ in range(BURST["control"] // RUN.units):
        assert holder.post("/v1/recommenders/m/runs", json={}).status_code == 202
    entries, runs = len(world.audit.list()), len(world.runs.rows)
    refused = holder.post("/v1/recommenders/m/runs", json={})
    said = problem(refused, 429, "rate-limited")
    assert refused.headers["Retry-After"] == "2"
    assert "EYAS_CONTROL_RATE" in said
    assert (len(world.audit.list()), len(world.runs.rows)) == (entries, runs)
    assert counted("control") == before + 1
    assert holder.get("/v1/runs").status_code == 200  # reads cost nothing
    assert other.post("/v1/recommenders/m/runs", json={}).status_code == 202
    clock.time += 2
    assert holder.post("/v1/recommenders/m/runs", json={}).status_code == 202


def test_each_costly_write_is_limited_for_each_token_an_admin_too(limited, spec_text, problem, subtests):
    routes = {
        "/v1/recommenders": HEAVY,
        "/v1/recommenders:validate": HEAVY,
        "/v1/recommenders:plan": HEAVY,
        "/v1/gc": HEAVY,
        "/v1/tokens": WRITE,
        "/v1/recommenders/m/runs": RUN,
        "/v1/recommenders/m:retrain": RUN,
        "/v1/recommenders/m:rollback": WRITE,
        "/v1/rollouts/o1:abort": WRITE,
        "/v1/runs/r1:cancel": WRITE,
    }
    for path, work in routes.items():
        with subtests.test(path=path):
            world = limited(control=1)
            answers = [world.client.post(path, content=b"{}").status_code for _ in range(BURST["control"] // work.units + 1)]
            assert 429 not in answers[:-1]
            assert answers[-1] == 429
            assert len(world.audit.list()) <= len(answers) - 1


def test_a_larger_body_costs_more(limited, spec_text):
    world = limited(control=1)
    padded = spec_text.ljust(64 * 1024)
    assert world.client.post("/v1/recommenders:validate", content=padded).status_code == 200
    assert world.client.post("/v1/recommenders:validate", content=padded).status_code == 429


GOOD, BAD, QUERY = {"content": b'{"user": 7}'}, {"content": b'{"user": '}, {"content": b'{"user": 7}', "params": {"trial": "true"}}
JSON = {"Content-Type": "application/json"}


@pytest.mark.parametrize("request_", [GOOD, BAD, QUERY], ids=["the short way", "a bad body", "the long way"])
def test_a_request_for_recommendations_is_counted_once_on_either_way(limited, problem, request_):
    world = limited(online=2)
    before = counted("online")
    asked = [world.client.post("/v1/recommend/m", headers=JSON, **request_) for _ in range(11)]
    assert [one.status_code == 429 for one in asked] == [False] * 10 + [True]
    assert "EYAS_ONLINE_RATE" in problem(asked[-1], 429, "rate-limited")
    assert asked[-1].headers["Retry-After"] == "1"
    assert counted("online") == before + 1


def test_tokens_do_not_spend_each_others_budgets_but_share_that_of_a_recommender(limited, problem):
    world = limited(online=2, recommender=3)
    first, second = world.holder("client"), world.holder("client")
    answers = [first.post("/v1/recommend/m", json={"user": 7}).status_code for _ in range(11)]
    assert answers == [200] * 10 + [429]
    answers = [second.post("/v1/recommend/m", json={"user": 7}) for _ in range(6)]
    assert [one.status_code for one in answers] == [200] * 5 + [429]
    assert "'m' is above its rate of requests" in problem(answers[-1], 429, "rate-limited")
    assert second.post("/v1/recommend/other", json={"user": 7}).status_code == 200


def test_events_items_and_features_cost_by_their_size(limited):
    world = limited(online=100)
    lines = b"\n" * (BULK.bytes // 2)
    kind = {"Content-Type": "application/x-ndjson"}
    assert world.client.post("/v1/events", content=lines, headers=kind).status_code != 429  # all that the bucket holds
    for method, path in (("POST", "/v1/events"), ("PUT", "/v1/items/m"), ("POST", "/v1/items/m"), ("PUT", "/v1/features/m/user")):
        assert world.client.request(method, path, content=b"\n", headers=kind).status_code == 429


def test_without_a_rate_nothing_is_refused():
    limits = RateLimits()
    for _ in range(10_000):
        limits.charge(HEAVY, "t", "m", 1 << 20)
        limits.charge(BULK, "t", "m", 1 << 20)
        limits.charge(FREE, "t", "m", 0)
        limits.count_failure("a")
        limits.check_failures("a")


def stranger(number):
    return {"Authorization": f"Bearer eyas_t{number:016d}_{'0' * 64}"}


def test_a_flood_of_unknown_tokens_asks_the_database_no_more(limited, clock, problem, monkeypatch):
    world = limited(failures=1)
    known, new = world.holder("viewer"), world.holder("viewer")
    assert known.get("/v1/whoami").status_code == 200
    asked = []
    get = world.tokens.get
    monkeypatch.setattr(world.tokens, "get", lambda id: asked.append(id) or get(id))
    answers = [world.stranger.get("/v1/whoami", headers=stranger(900 + number)).status_code for number in range(30)]
    assert answers == [401] * 10 + [429] * 20
    assert len(asked) == 10
    refused = world.stranger.get("/v1/whoami", headers=stranger(1))
    assert "EYAS_FAILURE_RATE" in problem(refused, 429, "rate-limited")
    assert refused.headers["Retry-After"] == "1"
    assert known.get("/v1/whoami").status_code == 200  # it was good before
    assert world.client.get("/v1/whoami").status_code == 200  # the first token is looked up nowhere
    assert new.get("/v1/whoami").status_code == 429  # nobody can tell it from a wrong one yet
    clock.time += 1
    assert new.get("/v1/whoami").status_code == 200
    assert world.stranger.get("/v1/whoami").status_code == 401  # without a token nothing is looked up


def test_addresses_that_one_client_can_choose_count_together(clock):
    limits = RateLimits(RateLimit(failures=0.1), clock)
    for address in ("203.0.113.7", "2001:db8:0:1::1", "proxy-7"):
        limits.count_failure(address)
    for same in ("203.0.113.7", "::ffff:203.0.113.7", "2001:db8:0:1::1", "2001:db8:0:1:ffff::2", "proxy-7"):
        with pytest.raises(TooFast):
            limits.check_failures(same)
    for other in ("203.0.113.8", "::ffff:203.0.113.8", "2001:db8:0:2::1", "proxy-8"):
        limits.check_failures(other)


def test_a_token_that_is_revoked_is_not_taken_for_a_good_one(limited):
    world = limited(failures=1)
    holder = world.holder("viewer")
    assert holder.get("/v1/whoami").status_code == 200
    world.client.delete(f"/v1/tokens/{world.tokens.list()[0].id}")
    assert [holder.get("/v1/whoami").status_code for _ in range(12)] == [401] * 10 + [429] * 2


def test_every_write_declares_its_limits_and_every_route_what_they_answer(openapi_document):
    for path, operations in openapi_document["paths"].items():
        for verb, operation in operations.items():
            assert "413" in operation["responses"]
            if operation["security"]:
                assert "Retry-After" in operation["responses"]["429"]["headers"]
            if verb == "get":
                assert "x-eyas-limits" not in operation
            else:
                assert operation["x-eyas-limits"]["budget"] in ("control", "online"), path
                assert operation["x-eyas-limits"]["bytes"] <= BULK.bytes


def test_the_label_of_the_metric_never_is_a_token(limited):
    world = limited(control=1)
    holder = world.holder("operator")
    for _ in range(30):
        holder.post("/v1/recommenders:validate", content=json.dumps(document()))
    labels = {sample.labels["limit"] for metric in metrics.LIMITED.collect() for sample in metric.samples}
    assert labels <= {"control", "online", "recommender", "failures", "body", "runs"}
