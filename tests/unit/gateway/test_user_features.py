"""What a version is told of users: the newest that counts, and no answer waits for a store that is away."""

from __future__ import annotations

import io
import json
import threading
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from services.gateway import Gateway
from services.gateway.gateway import Question
from shared.contracts.online import ONLINE, Online, OnlineColumn, View
from shared.domain.errors import Unavailable
from shared.domain.feature_values import StoredRow, instant
from shared.domain.route import Route
from shared.ports import FeatureRows
from shared.serving.values_file import ValueRows, write_values
from shared.telemetry import metrics
from tests.support.gateway_world import NOW, spec

DAY, LEAST = timedelta(days=1), -(2**63)
COLUMNS = (OnlineColumn(name="age", dtype="int64"), OnlineColumn(name="mean", dtype="float32"))
INPUTS = [
    {"name": "userId", "dtype": "int64", "side": "user"},
    {"name": "movieId", "dtype": "int64", "side": "item"},
    {"name": "age", "dtype": "int64", "side": "user", "source": "store", "view": "user"},
    {"name": "mean", "dtype": "float32", "side": "user", "source": "store", "view": "user"},
]


def row(key: int, at: datetime = NOW, **values: Any) -> StoredRow:
    return StoredRow(key, at, values)


def version(world: Any, folder: Path, number: int = 1, ttl: timedelta | None = 30 * DAY, at: datetime = NOW - 9 * DAY, **said: Any) -> None:
    """Published with the age 10 * user and the mean user / 2 of users 1 to 3."""
    users = np.array([1, 2, 3])
    values = ValueRows(users, np.full(3, instant(at)), {"age": 10 * users, "mean": (users / 2).astype(np.float32)})
    view, files = write_values(View(name="user", columns=COLUMNS, ttl=ttl, **said), values, lambda name: folder / f"{number}-{name}", 2)
    world.specs["m"] = spec(serve={"deadlines": {"features": "10s"}})  # a busy machine changes no outcome
    signature = {"user": "userId", "item": "movieId", "inputs": INPUTS}
    contents = {name: path.read_bytes() for name, path in files.items()}
    online = Online(views=(view,)).model_dump_json().encode()
    world.add_version(number, **{"signature.json": json.dumps(signature).encode(), ONLINE: online, **contents})


def opened(world: Any) -> Gateway:
    world.routes["m"] = Route(1, None, 0.0, None, 1)
    made: Gateway = world.gateway()
    made.refresh()
    return made


def told(world: Any, gateway: Gateway, user: int) -> tuple[int, float]:
    """The age and the mean that the version was asked with."""
    before = len(world.feeds)
    gateway.recommend("m", user)
    ((_, feed),) = world.feeds[before:]
    assert len(set(feed["age"].tolist())) == 1
    return int(feed["age"][0]), float(feed["mean"][0])


def reads(outcome: str) -> float:
    return metrics.FEATURE_READS.labels("m", "user", outcome)._value.get()


@pytest.mark.requirement("G-08")
class TestWhatCounts:
    @pytest.mark.parametrize(
        ("written", "own", "expected"),
        [
            ({}, {}, (10, 0.5)),
            ({"age": 33, "mean": 0.25}, {}, (33, 0.25)),
            ({"age": 33}, {}, (33, 0.5)),
            ({}, {"age": 11, "mean": 7.0}, (11, 7.0)),
            ({"age": 33}, {"age": 11, "mean": 7.0}, (33, 7.0)),
        ],
    )
    def test_the_newest_row_and_what_it_leaves_open(
        self, world: Any, tmp_path: Path, written: dict[str, Any], own: dict[str, Any], expected: tuple[int, float]
    ) -> None:
        version(world, tmp_path)
        if own:
            world.features.write("m", "user@1", [row(1, NOW - 8 * DAY, **own)])
        if written:
            world.features.write("m", "user", [row(1, NOW - DAY, **written)])
        gateway, hits, missing = opened(world), reads("hit"), reads("missing")
        assert told(world, gateway, 1) == expected
        stored = bool(own or written)
        assert (reads("hit") - hits, reads("missing") - missing) == (stored, not stored)

    def test_what_was_written_before_the_version_was_cut_does_not_overrule_it(self, world: Any, tmp_path: Path) -> None:
        version(world, tmp_path)
        world.features.write("m", "user", [row(1, NOW - 10 * DAY, age=99)])
        assert told(world, opened(world), 1) == (10, 0.5)

    def test_nobody_writes_into_codes_that_a_version_made(self, world: Any, tmp_path: Path) -> None:
        version(world, tmp_path, fitted=True)
        world.features.write("m", "user", [row(1, age=99)])
        assert told(world, opened(world), 1) == (10, 0.5)

    def test_another_versions_values_are_not_mixed_with_its_own(self, world: Any, tmp_path: Path) -> None:
        version(world, tmp_path)
        world.features.write("m", "user@2", [row(1, age=99)])
        assert told(world, opened(world), 1) == (10, 0.5)

    def test_a_user_of_whom_nothing_is_known_is_blank(self, world: Any, tmp_path: Path) -> None:
        version(world, tmp_path)
        age, mean = told(world, opened(world), 4)
        assert age == LEAST
        assert np.isnan(mean)

    def test_values_that_are_too_old_are_blank_wherever_they_lie(self, world: Any, tmp_path: Path) -> None:
        version(world, tmp_path, ttl=5 * DAY)
        world.features.write("m", "user", [row(1, NOW - 6 * DAY, age=33)])
        before = reads("expired")
        age, mean = told(world, opened(world), 1)
        assert age == LEAST
        assert np.isnan(mean)
        assert reads("expired") == before + 1

    def test_a_value_grows_too_old_while_it_is_cached(self, world: Any, tmp_path: Path) -> None:
        version(world, tmp_path, ttl=DAY)
        world.features.write("m", "user", [row(1, NOW, age=33)])
        gateway = opened(world)
        assert told(world, gateway, 1)[0] == 33
        world.clock.pass_by(days=1, seconds=1)
        assert told(world, gateway, 1)[0] == LEAST
        assert world.features.read.call_count == 1, "the second answer took what the first one had read"


@pytest.mark.requirement("G-08")
class TestHowItIsAsked:
    def test_requests_together_are_one_round_trip(self, world: Any, tmp_path: Path) -> None:
        version(world, tmp_path)
        gateway = opened(world)
        questions = [Question("m", user) for user in (1, 2, 3, 1)]
        assert not [one for one in gateway._answered(questions) if isinstance(one, Exception)]
        assert world.features.read.call_count == 1
        (feed,) = [feed for _, feed in world.feeds]
        assert dict(zip(feed["userId"].tolist(), feed["age"].tolist(), strict=True)) == {1: 10, 2: 20, 3: 30}

    def test_a_user_who_comes_again_at_once_asks_for_nothing(self, world: Any, tmp_path: Path) -> None:
        version(world, tmp_path)
        gateway = opened(world)
        for _ in range(3):
            told(world, gateway, 1)
        told(world, gateway, 2)
        assert world.features.read.call_count == 2

    def test_the_time_that_it_takes_is_said_apart(self, world: Any, tmp_path: Path) -> None:
        version(world, tmp_path)
        gateway = opened(world)
        answer = gateway.submit(Question("m", 1, explain=True)).result(10)
        assert answer.explained is not None
        assert "features" in answer.explained.seconds

    def test_a_version_without_such_inputs_asks_for_nothing(self, world: Any) -> None:
        opened(world).recommend("m", 1)
        assert world.features.read.call_count == 0

    def test_the_stable_version_and_the_candidate_are_told_their_own(self, world: Any, tmp_path: Path) -> None:
        version(world, tmp_path, 1)
        version(world, tmp_path, 2)
        world.features.write("m", "user@1", [row(user, age=100) for user in range(1, 6)])
        world.features.write("m", "user@2", [row(user, age=200) for user in range(1, 6)])
        world.routes["m"] = Route(1, 2, 0.5, "r1", 0, generation=1)
        gateway = world.gateway()
        gateway.refresh()
        for user in range(1, 6):
            gateway.recommend("m", user)
        assert {(number, int(feed["age"][0])) for number, feed in world.feeds} == {(1, 100), (2, 200)}


class Failing:
    reads = 0

    def read(self, *_: Any) -> FeatureRows:
        self.reads += 1
        raise Unavailable("Redis doesn't answer")


class Hanging:
    reads = 0

    def __init__(self) -> None:
        self.free = threading.Event()

    def read(self, *_: Any) -> FeatureRows:
        self.reads += 1
        self.free.wait(30)
        return FeatureRows({}, {})


@pytest.mark.requirement("G-08")
class TestAStoreThatIsAway:
    @pytest.mark.parametrize("store", [Failing, Hanging])
    def test_costs_no_answer_and_the_versions_own_values_stand_in(self, world: Any, tmp_path: Path, store: Any) -> None:
        version(world, tmp_path)
        world.specs["m"] = spec(serve={"deadlines": {"features": "1ms"}})
        world.features = store()
        before = reads("away")
        gateway = opened(world)
        for _ in range(5):
            assert told(world, gateway, 1) == (10, 0.5)
        assert reads("away") == before + 5
        assert world.features.reads <= 3, "who fails in a row is left alone for a while"
        if isinstance(world.features, Hanging):
            world.features.free.set()

    def test_is_the_same_without_any_store(self, world: Any, tmp_path: Path) -> None:
        version(world, tmp_path)
        world.features = None
        assert told(world, opened(world), 2) == (20, 1.0)

    def test_what_is_too_large_to_be_held_is_blank_without_the_store(
        self, world: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("services.gateway.loaded_version.OWN_BYTES", 50)
        version(world, tmp_path)
        world.features = Failing()
        assert told(world, opened(world), 1)[0] == LEAST


class TestAVersionThatDoesNotFit:
    @pytest.mark.parametrize(
        ("changes", "said"),
        [
            ({ONLINE: None}, "has no online.json"),
            ({ONLINE: b'{"views": []}'}, "has no column 'age' of the expected type in the view 'user'"),
            (
                {ONLINE: b'{"views": [{"name": "user", "columns": [{"name": "age", "dtype": "float32"}]}]}'},
                "online.json has no column 'age' of the expected type",
            ),
            ({"online.user.0000.npz": None}, "has no online.user.0000.npz"),
            ({"online.user.0000.npz": b"x"}, "cannot be read"),
        ],
    )
    def test_is_not_served(self, world: Any, tmp_path: Path, changes: dict[str, Any], said: str, caplog: pytest.LogCaptureFixture) -> None:
        version(world, tmp_path)
        files = world.versions["m", 1].files
        kept = {name: world.artifacts.read(file) for name, file in files.items()}
        world.add_version(1, **{**kept, **changes})
        gateway = opened(world)
        with pytest.raises(Unavailable, match=said):
            gateway.recommend("m", 1)


def test_an_array_of_bytes_is_none(world: Any, tmp_path: Path) -> None:
    """The reader of such a file refuses what numpy would unpickle."""
    version(world, tmp_path)
    stream = io.BytesIO()
    np.savez(stream, key=np.array([{}], dtype=object), at=np.array([1]))
    world.versions["m", 1].files["online.user.0000.npz"] = world.artifacts.keep(stream.getvalue())
    with pytest.raises(Unavailable, match="cannot be read"):
        opened(world).recommend("m", 1)
