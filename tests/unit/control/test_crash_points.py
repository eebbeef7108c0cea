"""kill -9 at each point of each transition of some lives: each goes on to the end that it would have had.

`tests/crash` does it for all lives: with real processes (`matrix`), and in process where those have no life of the kind.
"""

from __future__ import annotations

import itertools

import pytest

from shared.domain import retrainer, rollout
from shared.domain import run as run_domain
from tests.support.control_plane_scenarios import (
    LIVES,
    ROLLOUTS,
    RUNS,
    FateOfEachMove,
    Life,
    Undisturbed,
    assert_event_is_in_one_snapshot,
    dying_at_each_move,
    live,
    rivalled,
)
from tests.support.simulated_platform import POINTS, Fate
from tests.support.simulated_platform_fixtures import NewWorld

BY_NAME = {str(life): life for life in LIVES}
KILLED = [
    BY_NAME[name]
    for name in (
        "run crashed once",
        "run cancelled at work",
        "rollout through a shadow",
        "rollout paused and resumed",
        "retrainer fired",
        "retrainer deleted, and its name taken again",
    )
]


@pytest.mark.parametrize("lives", [RUNS, ROLLOUTS], ids=["runs", "rollouts"])
def test_an_undisturbed_life_goes_through_its_states(new_world: NewWorld, lives: list[Life], subtests: pytest.Subtests) -> None:
    for life in lives:
        with subtests.test(life=str(life)):
            world = new_world()
            live(world, life, Fate("none"))
            assert world.path() == list(life.path)
            world.close()


def test_the_lives_take_every_edge_of_every_machine() -> None:
    taken = {(life.kind, *edge) for life in LIVES for edge in itertools.pairwise(life.path)}
    edges = {
        (machine.name, edge.source, edge.target)
        for machine in (run_domain.MACHINE, rollout.MACHINE, retrainer.MACHINE)
        for edge in machine.edges
    }
    beside = {("run", stage, end) for stage in run_domain.STAGES for end in ("failed", "cancelled")} | {
        ("retrainer", "cooling", "retraining"),
        ("retrainer", "retraining", "retired"),
    }
    assert edges - taken <= beside, "edges that are like others of their kind"


@pytest.mark.requirement("G-11", "C-05")
@pytest.mark.parametrize("life", KILLED, ids=str)
def test_deaths_at_every_transition_change_nothing_about_the_end(new_world: NewWorld, life: Life, subtests: pytest.Subtests) -> None:
    undisturbed = Undisturbed(new_world)
    _, moves = undisturbed.of(life)
    for point in POINTS:
        count = sum(point in move.points for move in moves)
        if count:
            with subtests.test(point=point):
                fate = undisturbed.disturb(life, dying_at_each_move(life.kind, point))
                assert isinstance(fate, FateOfEachMove)
                assert len(fate.positions) == count


@pytest.mark.parametrize("life", [RUNS[0], ROLLOUTS[1]], ids=str)
def test_a_second_controller_in_the_middle_of_a_transition_changes_nothing(new_world: NewWorld, life: Life) -> None:
    """At another point of each transition."""
    undisturbed = Undisturbed(new_world)
    _, moves = undisturbed.of(life)
    for number, move in enumerate(moves):
        undisturbed.disturb(life, rivalled(life, number, move.points[-1 - number % len(move.points)]))


@pytest.mark.requirement("G-09")
def test_an_event_during_a_death_is_in_exactly_one_snapshot(new_world: NewWorld, subtests: pytest.Subtests) -> None:
    for point in POINTS:
        with subtests.test(point=point):
            assert_event_is_in_one_snapshot(new_world(), point)
