"""What gates ask beside the values themselves: how sure each is, whole or of a slice, for every contender on the same cases."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from pipelines.evaluation.certainty import Influence, errors, of_auc, of_mean
from pipelines.evaluation.judge import Judgement, Labelled
from pipelines.evaluation.observed import observe
from pipelines.evaluation.slices import Slice
from shared.domain.metric import RANKING, Metric, parse_metric


def certainties(
    names: Sequence[str], judged: Mapping[str, Judgement], slices: Sequence[Slice], labelled: Labelled
) -> tuple[dict[str, float], dict[str, str]]:
    """Of the named metrics; and why some are missing."""
    found: dict[str, dict[str, Influence]] = {who: {} for who in judged}
    for name in names:
        for who, one in judged.items():
            influence = _influence(parse_metric(name), one, slices, labelled)
            if influence is not None:
                found[who][name] = influence
    return errors(found, {name: _lacks(name) for name in names})


def unmeasured(names: Sequence[str], contenders: Iterable[str], values: Mapping[str, float]) -> dict[str, str]:
    """Why metrics of slices aren't there."""
    absent = [(who, name) for who in contenders for name in names if f"{who}.{name}" not in values]
    return {f"{who}.{name}": _lacks(name) for who, name in absent if parse_metric(name).slice}


def _influence(metric: Metric, one: Judgement, slices: Sequence[Slice], labelled: Labelled) -> Influence | None:
    if metric.kind not in RANKING:
        if one.scores is None or one.auc is None:
            return None
        users, owners = np.unique(labelled.users, return_inverse=True)
        return of_auc(labelled.labels, one.scores.astype(np.float64), owners, len(users))
    chosen = next((part.chosen for part in slices if part.name == metric.slice), None)
    if metric.slice is not None and (chosen is None or not chosen.any()):
        return None
    seen = observe(one.ranked, [str(metric.whole)], chosen)[str(metric.whole)]
    return of_mean(seen.values, seen.owners, len(one.ranked.shown))


def _lacks(name: str) -> str:
    part = parse_metric(name).slice
    return f"the holdout has no case of {part}" if part else "the holdout has rows of one label alone"
