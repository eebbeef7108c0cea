"""What a serving version is asked with in an evaluation, where only its own files say it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from pipelines.export.online import write_online
from pipelines.features.raw import item_columns, signature
from pipelines.inputs.eval_pairs import RawColumns
from pipelines.inputs.version_values import PublishedValues
from shared.contracts.online import ONLINE
from shared.contracts.serving import Serve
from shared.domain.errors import Invalid
from shared.serving.signature import BLANK, Signature
from tests.support.exported_units import Small, small

STRANGER, ABSENT = 10_000, 21
"""A user and an item that the version knows nothing of."""


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Small:
    return small(tmp_path_factory.mktemp("small"))


@pytest.fixture(scope="module")
def served(world: Small) -> Signature:
    return signature(world.graph, Serve(vocabulary_limit=3))


@pytest.fixture(scope="module")
def fetch(world: Small, served: Signature) -> Callable[[str], Path]:
    """As export publishes it, in parts of seven users."""
    raw = world.raw.stored(world.graph, 3)
    with (world.folder / "catalogue.npz").open("wb") as stream:
        np.savez(stream, **item_columns(raw.items, served))
    write_online(served, raw.users, datetime(2026, 1, 1, tzinfo=UTC), None, lambda name: world.folder / name, part=7)
    return lambda name: world.folder / name


def pairs(world: Small) -> tuple[np.ndarray, np.ndarray]:  # type: ignore[type-arg]
    users = np.append(world.graph.key("userId").state.values.sort().to_numpy(), STRANGER)
    return np.repeat(users, len(world.items)), np.tile(np.arange(len(world.items)), len(users))


@pytest.mark.requirement("G-08")
def test_its_own_values_are_those_that_it_was_exported_with(world: Small, served: Signature, fetch: Callable[[str], Path]) -> None:
    users, rows = pairs(world)
    expected = world.raw.stored(world.graph, 3).of(served)(users, rows)
    own = PublishedValues(served, fetch)
    found = world.raw.of(served, own)(users, rows)
    known = np.isin(users, world.meetings.moments.users)
    assert set(own.used) == {one.name for one in served.inputs if one.name.endswith("@stored")} and known.any()
    for one in served.inputs:
        which = known | (users == STRANGER) if one.side == "user" else slice(None)
        np.testing.assert_array_equal(found[one.name][which], expected[one.name][which], err_msg=one.name)


def test_where_the_data_of_a_run_lacks_a_column_the_version_says_it_too(
    world: Small, served: Signature, fetch: Callable[[str], Path]
) -> None:
    """A run of a family of keys prepares neither genres nor ages."""
    bare = RawColumns(world.items.select("movieId", genres=pl.lit("Drama|Comedy")), None, world.meetings.moments)
    own = PublishedValues(served, fetch)
    users, rows = pairs(world)
    found = bare.of(served, own)(users, rows)
    whole = world.raw.stored(world.graph, 3).of(served)(users, rows)
    for name in ("genres", "price", "year@stored"):
        assert name in own.used
        np.testing.assert_array_equal(found[name], whole[name])
    there = np.isin(users, world.meetings.moments.users)
    np.testing.assert_array_equal(found["age"][there], whole["age"][there])
    assert (found["age"][users == STRANGER] == BLANK["int64"]).all()


@pytest.mark.requirement("G-08")
def test_whom_and_what_it_was_not_published_with_is_blank(world: Small, served: Signature, fetch: Callable[[str], Path]) -> None:
    more = pl.concat([world.items, world.items.tail(1).with_columns(movieId=pl.lit(ABSENT, pl.Int64))])
    raw = RawColumns(more, world.ready.users, world.meetings.moments)
    columns = raw.of(served, PublishedValues(served, fetch))(np.array([STRANGER, 1]), np.array([len(more) - 1, 0]))
    for one in served.inputs:
        if one.name.endswith("@stored"):
            value, blank = columns[one.name][0], BLANK[one.dtype]
            assert np.all(np.isnan(value) if one.dtype == "float32" else value == blank), one.name


def test_only_those_who_are_asked_for_are_held(world: Small, served: Signature, fetch: Callable[[str], Path]) -> None:
    stored = [one for one in served.side("user") if one.view == "fitted"]
    keys, columns = PublishedValues(served, fetch).users(stored, np.array([3, 9, 20, STRANGER]))
    assert keys.tolist() == [3, 9, 20]
    assert {len(column) for column in columns.values()} == {4}


def test_a_version_whose_files_say_less_than_its_unit_asks_is_not_compared(
    world: Small, served: Signature, fetch: Callable[[str], Path], tmp_path: Path
) -> None:
    np.savez(tmp_path / "catalogue.npz", movieId=np.arange(3))
    (tmp_path / ONLINE).write_text('{"views": []}')
    own = PublishedValues(served, lambda name: tmp_path / name)
    with pytest.raises(Invalid, match=r"the serving version's catalogue.npz has no column '.*@stored'"):
        world.raw.of(served, own)
    with pytest.raises(Invalid, match=r"the serving version's online.json has no view 'fitted', which its served unit needs"):
        own.users([one for one in served.side("user") if one.view == "fitted"], np.array([1]))


def test_what_the_interactions_say_beyond_the_keys_is_asked_with_whoever_reads_it(world: Small) -> None:
    moments = world.meetings.moments
    count = len(moments.users)
    said = {"device": pl.Series(["phone", "tv"] * count)[:count], "cart": pl.Series([[1, 2]] * count), "words": pl.Series(["a|b"] * count)}
    raw = replace(world.raw, moments=replace(moments, raw=pl.DataFrame(), extra=pl.DataFrame(said)))
    keys = [{"name": "userId", "dtype": "int64", "side": "user"}, {"name": "movieId", "dtype": "int64", "side": "item"}]
    context = [
        {"name": "device", "dtype": "string", "side": "context"},
        {"name": "cart", "dtype": "int64", "width": 3, "side": "context"},
        {"name": "at", "dtype": "int64", "side": "context"},
    ]
    served = Signature.model_validate({"user": "userId", "item": "movieId", "time": "at", "inputs": keys + context})
    found = raw.of(served, None)(np.array([moments.users[1], STRANGER]), np.array([0, 0]))
    blank = BLANK["int64"]
    assert found["device"].tolist() == ["tv", ""]
    assert found["cart"].tolist() == [[1, 2, blank], [blank] * 3]
    assert found["at"].tolist() == [moments.times[1], blank]
    words = {"name": "words", "dtype": "string", "width": 2, "side": "context"}
    with pytest.raises(Invalid, match="the interactions' column 'words' is String: only the serving version can convert it to string"):
        raw.of(
            served.model_copy(
                update={"inputs": Signature.model_validate(served.model_dump() | {"inputs": [*keys, words], "time": None}).inputs}
            )
        )
