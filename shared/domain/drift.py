"""How far a distribution has moved: the population stability index over named bins."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping

_FLOOR = 0.5


def psi(reference: Mapping[str, int], current: Mapping[str, int], bins: int = 20) -> float:
    """Sum over bins of (q - p) ln(q / p); the reference's rarest values share one bin, empty bins count half a row."""
    kept = [name for name, _ in sorted(reference.items(), key=lambda pair: (-pair[1], pair[0]))[: bins - 1]]
    before, after = _binned(reference, kept), _binned(current, kept)
    names = before.keys() | after.keys()
    before_all, after_all = (sum(max(c[name], _FLOOR) for name in names) for c in (before, after))
    result = 0.0
    for name in sorted(names):
        p, q = max(before[name], _FLOOR) / before_all, max(after[name], _FLOOR) / after_all
        result += (q - p) * math.log(q / p)
    return result


def _binned(counts: Mapping[str, int], kept: list[str]) -> Counter[str]:
    binned: Counter[str] = Counter()
    for name, count in counts.items():
        binned[name if name in kept else "other"] += count
    return binned
