"""Whom to probe, and when."""

from __future__ import annotations

from services.triton.probe import ProbeSchedule

A, B = ("movies", 1), ("movies", 2)


def test_only_suspects_are_probed_between_rounds() -> None:
    suspects = ProbeSchedule(probe_every=10, heal_every=15, now=0)
    suspects.add(A)
    assert suspects.due([A, B], now=1) == {A}
    assert suspects.due([A, B], now=2) == set()
    assert suspects.due([A, B], now=10) == {A, B}
    assert suspects.due([A, B], now=11) == set()


def test_a_suspect_that_serves_no_more_is_let_go() -> None:
    suspects = ProbeSchedule(probe_every=10, heal_every=15, now=0)
    suspects.add(A)
    assert suspects.due([B], now=1) == set()


def test_a_version_that_cannot_be_healed_is_not_tried_at_every_look() -> None:
    suspects = ProbeSchedule(probe_every=10, heal_every=15, now=0)
    assert suspects.may_heal(A, now=0)
    assert not suspects.may_heal(A, now=5)
    assert suspects.due([A], now=6) == {A}
    assert suspects.may_heal(A, now=15)
    assert suspects.may_heal(B, now=15)
