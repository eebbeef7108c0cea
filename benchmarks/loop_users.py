"""Users with planted tastes, in a simulated month: who comes when, what they click and pick unasked, and how their tastes shift.

A visit is the same in every arm, down to its luck: what a user would click if it were shown is drawn before it is known what is
shown. So arms differ by what they show and by nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from pipelines.data.synthetic import Floats, Ints, World

FASHION, EXCHANGE = "the fashion changes", "tastes are exchanged"


@dataclass(frozen=True)
class Scene:
    """How large it is, and on which days what shifts."""

    users: int = 1000
    items: int = 600
    ratings: int = 40_000
    visits: int = 2000
    """A day."""
    days: int = 30
    fashion: int = 10
    exchange: int = 20
    shown: int = 5
    organic: int = 2
    seed: int = 1

    @property
    def shifts(self) -> dict[int, str]:
        return {self.fashion: FASHION, self.exchange: EXCHANGE}

    def phase(self, day: int) -> int:
        return (day >= self.fashion) + (day >= self.exchange)

    def worlds(self) -> tuple[World, World, World]:
        """Of each phase: at first; half of a fashion's genres in, half out, others than before; and users with each other's tastes."""
        plain = World.create(self.users, self.items, seed=self.seed)
        later = plain.in_fashion(2)
        return plain.in_fashion(1), later, later.exchanged(3)


@dataclass(frozen=True)
class Picked:
    """What a user rates unasked."""

    items: Ints
    stars: Floats


class Crowd:
    """Who comes on one day, and what they would do."""

    def __init__(self, scene: Scene, world: World, day: int) -> None:
        self._scene = scene
        self._world = world
        rng = np.random.default_rng([scene.seed, day, 81])
        rounds = -(-scene.visits // scene.users)
        self.users: list[int] = np.concatenate([rng.permutation(world.user_ids) for _ in range(rounds)])[: scene.visits].tolist()
        self._luck = rng.random((scene.visits, scene.items), dtype=np.float32)
        self._picks = rng.spawn(scene.visits)
        self._chances = world.liking()
        best = np.sort(np.partition(self._chances, -scene.shown, axis=1)[:, -scene.shown :], axis=1)
        self._most = 1 - np.prod(1 - best, axis=1)

    def clicked(self, visit: int, shown: Sequence[int]) -> list[int]:
        columns = np.searchsorted(self._world.item_ids, shown)
        row = self.users[visit] - 1
        return [item for item, column in zip(shown, columns, strict=True) if self._luck[visit, column] < self._chances[row, column]]

    def promise(self, visit: int, shown: Sequence[int]) -> float:
        """The chance that these earn a click."""
        columns = np.searchsorted(self._world.item_ids, shown)
        return float(1 - np.prod(1 - self._chances[self.users[visit] - 1, columns]))

    def picked(self, visit: int) -> Picked:
        return Picked(*self._world.organic(self.users[visit], self._scene.organic, self._picks[visit]))

    def oracle(self) -> float:
        """The hit rate of who shows each visitor what their tastes like best."""
        return float(self._most[np.asarray(self.users) - 1].mean())


def crowds(scene: Scene) -> Iterator[tuple[int, Crowd]]:
    worlds = scene.worlds()
    for day in range(scene.days):
        yield day, Crowd(scene, worlds[scene.phase(day)], day)
