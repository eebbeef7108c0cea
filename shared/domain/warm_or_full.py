"""Choice of the mode `auto`: a warm run from the serving version or a full run, with its reason.

A warm run is cheap and learns only from new data. A full run is needed if a change is outside a warm run's reach, the vocabulary has
outgrown the last full run, small losses add up, or the feedback has drifted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

Mode = Literal["full", "warm"]
RequestedMode = Literal["full", "warm", "auto"]
"""Requested mode; `auto` is decided when the run begins."""


@dataclass(frozen=True)
class FullRunLimits:
    """Limits that make a run full: `warm_runs` at the limit, the others above it; None: not checked."""

    grown: float | None = 0.2
    warm_runs: int | None = 10
    forgotten: float | None = 0.05
    drift: float | None = 0.5


USUAL = FullRunLimits()
KNOWS_FORGOTTEN = "users were forgotten after the serving version read its data"


@dataclass(frozen=True)
class Link:
    """One version of the lineage: its mode and its measurements."""

    mode: Mode
    codes: Mapping[str, int] = field(default_factory=dict)
    """Numbers of users and items, by column."""
    forgotten: float | None = None
    """Relative loss of a warm version to its parent."""


@dataclass(frozen=True)
class TrainingHistory:
    """Data known before a retraining. `line`: the serving version, its parent, and so on to the last full run; empty if no version
    serves."""

    line: Sequence[Link] = ()
    changed: str | None = None
    """Changed setting of the spec that a warm run cannot change."""
    refused: str | None = None
    """Rejected warm run from the serving version."""
    drift: tuple[str, float] | None = None
    """Item feature with the largest drift beyond chance, and its PSI."""
    knows_forgotten: bool = False
    """Whether the serving version learned from users who were forgotten later."""


@dataclass(frozen=True)
class ModeChoice:
    mode: Mode
    reason: str

    @property
    def summary(self) -> str:
        """`auto: warm (3 warm runs since the last full one)`."""
        return f"auto: {self.mode} ({self.reason})"


def choose(past: TrainingHistory, rule: FullRunLimits) -> ModeChoice:
    """Returns full with the first reason that holds, else warm."""
    if not past.line:
        return ModeChoice("full", "no version to continue from")
    if past.knows_forgotten:
        return ModeChoice("full", KNOWS_FORGOTTEN)
    if past.changed is not None:
        return ModeChoice("full", f"{past.changed} has changed, which a warm run cannot follow")
    if past.refused is not None:
        return ModeChoice("full", f"warm run {past.refused} from the serving version was rejected")
    if past.line[-1].mode != "full":
        return ModeChoice("full", "the lineage of the serving version has no full run")
    reason = _grown(past, rule) or _in_a_row(past, rule) or _forgotten(past, rule) or _drifted(past, rule)
    return ModeChoice("full", reason) if reason else ModeChoice("warm", _calm(past))


def grown(line: Sequence[Link]) -> tuple[str, float]:
    """Returns the vocabulary that has grown most since the full run, and the share; of equal shares the first by name."""
    now, then = line[0].codes, line[-1].codes
    shares = {name: now[name] / then[name] - 1 for name in sorted(now) if then.get(name)}
    return max(shares.items(), key=lambda pair: pair[1], default=("", 0.0))


def forgotten(line: Sequence[Link]) -> float:
    """Returns the loss of the newest version against the best of the lineage, from the losses of the warm runs."""
    retained = best = 1.0
    for link in reversed(line):
        retained *= 1 - (link.forgotten or 0.0) if link.mode == "warm" else 1.0
        best = max(best, retained)
    return 1 - retained / best


def warm_runs(line: Sequence[Link]) -> int:
    return sum(link.mode == "warm" for link in line)


def _grown(past: TrainingHistory, rule: FullRunLimits) -> str | None:
    name, share = grown(past.line)
    if rule.grown is None or share <= rule.grown:
        return None
    return f"{name} has {share:.0%} more codes than at the last full run (limit {rule.grown:.0%})"


def _in_a_row(past: TrainingHistory, rule: FullRunLimits) -> str | None:
    count = warm_runs(past.line)
    if rule.warm_runs is None or count < rule.warm_runs:
        return None
    return f"{count} warm {_runs(count)} since the last full one (limit {rule.warm_runs})"


def _forgotten(past: TrainingHistory, rule: FullRunLimits) -> str | None:
    share = forgotten(past.line)
    if rule.forgotten is None or share <= rule.forgotten:
        return None
    return f"{share:.1%} forgotten since the last full run (limit {rule.forgotten:.1%})"


def _drifted(past: TrainingHistory, rule: FullRunLimits) -> str | None:
    if rule.drift is None or past.drift is None or past.drift[1] <= rule.drift:
        return None
    return f"drift of {past.drift[0]}: psi {past.drift[1]:.3f} (limit {rule.drift:g})"


def _calm(past: TrainingHistory) -> str:
    count = warm_runs(past.line)
    name, share = grown(past.line)
    parts = [f"{count} warm {_runs(count)} since the last full one"]
    parts += [f"{name} {share:+.0%} codes"] if name else []
    parts += [f"{forgotten(past.line):.1%} forgotten"] if count else []
    return ", ".join(parts)


def _runs(count: int) -> str:
    return "run" if count == 1 else "runs"
