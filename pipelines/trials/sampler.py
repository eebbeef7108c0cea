"""What to try next, by Optuna's tree-structured Parzen estimator.

A choice follows from the seed, its number and the trials before it, and from nothing else: whoever knows these chooses the same, in
another process too. The study is made anew each time, in memory; what is kept of a search is the ledger's business.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from pipelines.trials.space import Chosen, Space
from shared.contracts.ranges import Range
from shared.contracts.tuning import TriedRow
from shared.domain.errors import Invalid

AT_RANDOM = 8
"""So many trials are drawn before anything is learned from them."""
_DIGITS = 4
"""Of a fraction: what is more would be no more than noise, and nobody could read it."""


def choose(space: Space, seed: int, number: int, trials: Sequence[TriedRow]) -> Chosen:
    """Nothing in the first trial: settings as they are."""
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
    """Late: nothing else needs it, and it isn't there where nobody searches."""
    try:
        import optuna
    except ModuleNotFoundError as error:
        if error.name != "optuna":
            raise
        raise Invalid("eyas tune needs Optuna, which is not installed: pip install 'eyas[tune]'") from None
    return optuna


def _observed_params(space: Space, row: TriedRow) -> Chosen | None:
    """None where what was tried isn't within the ranges, as settings as they are may not be."""
    if row.params:
        return row.params
    return space.before if space.before and space.before_is_within else None


def _picked(trial: Any, name: str, range_: Range, integer: bool) -> Any:
    if range_.of is not None:
        return json.loads(trial.suggest_categorical(name, _words(range_)))
    if integer:
        return trial.suggest_int(name, range_.low, range_.high, log=range_.log)
    assert range_.low is not None and range_.high is not None
    suggested = trial.suggest_float(name, range_.low, range_.high, log=range_.log)
    return min(max(float(f"{suggested:.{_DIGITS}g}"), float(range_.low)), float(range_.high))


def _words(range_: Range) -> list[str]:
    return [json.dumps(value) for value in range_.of or ()]


def _frozen(space: Space, params: Chosen, row: TriedRow) -> Any:
    """A trial that failed counts as worse than all that didn't: what is like it is avoided."""
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
