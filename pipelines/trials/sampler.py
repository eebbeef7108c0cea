"""Chooses the settings of the next trial with Optuna's tree-structured Parzen estimator.

A choice depends only on the seed, the trial's number and the earlier trials, so another process makes the same choice. The study is
rebuilt in memory for each choice; the ledger stores the trials."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from pipelines.trials.space import Chosen, Space
from shared.contracts.ranges import NumberRange
from shared.contracts.tuning import TriedRow
from shared.domain.errors import Invalid

AT_RANDOM = 8
"""Random trials before the estimator learns."""
_DIGITS = 4
"""Significant digits of a float; more digits would be noise."""


def choose(space: Space, seed: int, number: int, trials: Sequence[TriedRow]) -> Chosen:
    """Chooses settings; the first trial chooses none and uses the given settings."""
    if number == 0:
        return {}
    optuna = load_optuna()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    own = int(np.random.SeedSequence((seed, number)).generate_state(1)[0])
    sampler = optuna.samplers.TPESampler(n_startup_trials=AT_RANDOM, seed=own, multivariate=False)
    study = optuna.create_study(direction="maximize", sampler=sampler)
    for row in trials:
        if (params := _observed_params(space, row)) is not None:
            study.add_trial(_frozen(space, params, row))
    trial = study.ask()
    return space.choose(lambda name, range_, integer: _picked(trial, name, range_, integer))


def load_optuna() -> Any:
    """Imports Optuna late, because only searches need this optional package."""
    try:
        import optuna
    except ModuleNotFoundError as error:
        if error.name != "optuna":
            raise
        raise Invalid("eyas tune needs Optuna, which is not installed: pip install 'eyas[tune]'") from None
    return optuna


def _observed_params(space: Space, row: TriedRow) -> Chosen | None:
    """Returns a trial's settings, or None if they are outside the ranges, which is possible for the given settings."""
    if row.params:
        return row.params
    return space.before if space.before and space.before_is_within else None


def _picked(trial: Any, name: str, range_: NumberRange, integer: bool) -> Any:
    if range_.of is not None:
        return json.loads(trial.suggest_categorical(name, _words(range_)))
    if integer:
        return trial.suggest_int(name, range_.low, range_.high, log=range_.log)
    assert range_.low is not None and range_.high is not None
    suggested = trial.suggest_float(name, range_.low, range_.high, log=range_.log)
    return min(max(float(f"{suggested:.{_DIGITS}g}"), float(range_.low)), float(range_.high))


def _words(range_: NumberRange) -> list[str]:
    return [json.dumps(value) for value in range_.of or ()]


def _frozen(space: Space, params: Chosen, row: TriedRow) -> Any:
    """Converts a trial for Optuna. A failed trial ranks below all others, so that similar settings are avoided."""
    from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
    from optuna.trial import TrialState, create_trial

    values: dict[str, Any] = {}
    among: dict[str, BaseDistribution] = {}
    for name, value in params.items():
        range_ = space.ranges[name]
        values[name] = value if range_.of is None else json.dumps(value)
        if range_.of is not None:
            among[name] = CategoricalDistribution(_words(range_))
        else:
            assert range_.low is not None and range_.high is not None
            if name in space.integers:
                among[name] = IntDistribution(int(range_.low), int(range_.high), log=range_.log)
            else:
                among[name] = FloatDistribution(float(range_.low), float(range_.high), log=range_.log)
    if row.state == "failed":
        return create_trial(state=TrialState.PRUNED, params=values, distributions=among)
    return create_trial(value=row.value, params=values, distributions=among)
