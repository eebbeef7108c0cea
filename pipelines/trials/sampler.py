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
        if (params := _told(space, row)) is not None:
            study.add_trial(_frozen(space, params, row))
    trial = study.ask()
    return space.choose(lambda name, one, whole: _picked(trial, name, one, whole))


def load_optuna() -> Any:
    """Late: nothing else needs it, and it isn't there where nobody searches."""
    try:
        import optuna
    except ModuleNotFoundError as error:
        if error.name != "optuna":
            raise
        raise Invalid("eyas tune needs Optuna, which is not installed: pip install 'eyas[tune]'") from None
    return optuna


def _told(space: Space, row: TriedRow) -> Chosen | None:
    """None where what was tried isn't within the ranges, as settings as they are may not be."""
    if row.params:
        return row.params
    return space.before if space.before and space.before_is_within else None


def _picked(trial: Any, name: str, one: Range, whole: bool) -> Any:
    if one.of is not None:
        return json.loads(trial.suggest_categorical(name, _words(one)))
    if whole:
        return trial.suggest_int(name, one.low, one.high, log=one.log)
    assert one.low is not None and one.high is not None
    found = trial.suggest_float(name, one.low, one.high, log=one.log)
    return min(max(float(f"{found:.{_DIGITS}g}"), float(one.low)), float(one.high))


def _words(one: Range) -> list[str]:
    return [json.dumps(value) for value in one.of or ()]


def _frozen(space: Space, params: Chosen, row: TriedRow) -> Any:
    """A trial that failed counts as worse than all that didn't: what is like it is avoided."""
    from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
    from optuna.trial import TrialState, create_trial

    values: dict[str, Any] = {}
    among: dict[str, BaseDistribution] = {}
    for name, value in params.items():
        one = space.ranges[name]
        values[name] = value if one.of is None else json.dumps(value)
        if one.of is not None:
            among[name] = CategoricalDistribution(_words(one))
        else:
            assert one.low is not None and one.high is not None
            if name in space.whole:
                among[name] = IntDistribution(int(one.low), int(one.high), log=one.log)
            else:
                among[name] = FloatDistribution(float(one.low), float(one.high), log=one.log)
    if row.state == "failed":
        return create_trial(state=TrialState.PRUNED, params=values, distributions=among)
    return create_trial(value=row.value, params=values, distributions=among)
