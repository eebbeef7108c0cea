"""Every row once, in as many batches for every shard, wherever one begins."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from pipelines.loaders.plan import ChunkRows, Plan, Shard

SIZES = st.lists(st.integers(0, 40), max_size=12)


def batches(plan: Plan, epoch: int) -> list[list[tuple[int, int]]]:
    """As chunks and places, by slices as whoever reads takes them."""
    found: list[list[tuple[int, int]]] = []
    for pool in plan.pools(epoch):
        assert pool.step == len(found)
        rows = [list(zip(pool.left.chunks.tolist(), pool.left.places.tolist(), strict=True))]
        rows += [[(part.chunk, place) for place in range(part.first, part.last)] for part in pool.parts]
        at = [0] * len(rows)
        for takes in pool.takes.tolist():
            batch = []
            for n, take in enumerate(takes):
                batch += rows[n][at[n] : at[n] + take]
                at[n] += take
            found.append(batch)
    return found


@pytest.mark.requirement("T-01", "T-03", "L-01")
@settings(max_examples=60, deadline=None, derandomize=True)
@given(SIZES, st.integers(1, 50), st.integers(1, 90), st.integers(0, 9), st.integers(1, 5), st.booleans(), st.booleans())
@example(sizes=[1, 1, 1], batch=1, pool=1, seed=0, world=2, shuffle=False, drop=False)
def test_every_row_is_in_one_batch_of_one_shard(
    sizes: list[int], batch: int, pool: int, seed: int, world: int, shuffle: bool, drop: bool
) -> None:
    assume(not sum(sizes) or sum(sizes) >= world)  # open_loader refuses fewer rows than shards
    found = []
    for rank in range(world):
        plan = Plan(sizes, batch, pool, seed, shuffle, drop, Shard(rank, world))
        mine = batches(plan, 3)
        assert len(mine) == plan.steps
        assert all(len(one) == batch for one in mine[:-1])
        assert all(len(one) <= batch + 1 for one in mine)
        assert batches(plan, 3) == mine
        found += [row for one in mine for row in one]
        if not shuffle:
            assert [row for one in mine for row in one] == sorted(row for one in mine for row in one)
    counted, every = Counter(found), {(chunk, place) for chunk, size in enumerate(sizes) for place in range(size)}
    assert max(counted.values(), default=1) == 1
    assert set(counted) <= every
    assert drop or set(counted) == every
    assert len(every) - len(counted) < world * (batch + 1)


@pytest.mark.requirement("L-01")
def test_batches_are_as_if_the_pool_was_shuffled() -> None:
    """Of 2,000 epochs: how many rows of each of three chunks the first batch has, beside what a shuffle of all rows gives."""
    sizes, batch = (30, 60, 10), 20
    pools = [next(Plan(sizes, batch, 100, seed=seed).pools(0)) for seed in range(2000)]
    drawn = np.array([pool.takes[0][1:] for pool in pools], np.float64)
    order = np.array([[part.chunk for part in pool.parts] for pool in pools])
    by_chunk = np.take_along_axis(drawn, np.argsort(order, axis=1), axis=1)
    shares = np.array(sizes) / 100
    spread = batch * shares * (1 - shares) * (100 - batch) / 99
    assert np.allclose(by_chunk.mean(axis=0), batch * shares, atol=4 * np.sqrt(spread.max() / 2000))
    assert np.allclose(by_chunk.var(axis=0), spread, rtol=0.15)


@pytest.mark.requirement("T-03")
def test_epochs_and_seeds_differ_and_nothing_else_does() -> None:
    plan = Plan((50, 50, 50), 10, 60, seed=1)
    assert batches(plan, 0) != batches(plan, 1)
    assert batches(plan, 0) != batches(Plan((50, 50, 50), 10, 60, seed=2), 0)
    first = next(plan.pools(0))
    assert isinstance(first.parts[0], ChunkRows)
    assert first.step == 0
