"""What gates decide on 20,000 users about a candidate whose true change of hit rate is known: by simulation through the code that judges.

    python -m benchmarks.gate_verdicts [--runs 500] [--users 20000] [--rate 0.1] [--alike 0.9]

Each user has an own rate of hits and one to ten cases; each case is a hit of the serving version, or of the candidate, where a normal
variable lies below a threshold. The variables of the two versions correlate (`--alike`), as those of two fits of one family do. The rate of
the candidate is that of the serving version times one plus the true change. Each run is judged as evaluate does it: standard errors and
paired differences of `pipelines.evaluation.gate_metrics`, then the gate. With 90% confidence a gate may pass in at most 10% of the runs
where the truth is below its threshold, and fail in at most 10% where the truth is at the threshold or above.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy.special import ndtri

from benchmarks.harness import Fields, Outcome, Row, benchmark
from benchmarks.populations import hit_rates
from pipelines.evaluation.gate_metrics import CANDIDATE, Evidence, certainties
from pipelines.evaluation.judge import Labelled, ModelEvaluation
from pipelines.evaluation.per_user import observe
from pipelines.evaluation.ranking import SHOWN, CaseRanks
from pipelines.evaluation.standard_errors import Floats
from shared.contracts.gates import MetricGate
from shared.contracts.plans import gate_rule
from shared.domain.gate import Gate, judge

METRIC = "hr@10"
CHANGES = (-0.05, -0.02, -0.01, 0.0, 0.01, 0.02, 0.05)
CASES = (1, 2, 3, 5, 10)
_SPREAD = 6.0
_NOBODY = Labelled(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.int8))


def gates(rate: float) -> dict[str, tuple[Gate, float]]:
    """Each gate by its text in the spec, with the smallest true change that should pass it."""
    documents: dict[str, tuple[dict[str, Any], float]] = {
        "not_worse_than: serving": ({"not_worse_than": "serving"}, 0.0),
        "not_worse_than: serving, by: 1%": ({"not_worse_than": "serving", "by": "1%"}, -0.01),
        "not_worse_than: serving, by: 5%": ({"not_worse_than": "serving", "by": "5%"}, -0.05),
        "not_worse_than: serving, confidence: 50%": ({"not_worse_than": "serving", "confidence": "50%"}, 0.0),
        "better_than: serving": ({"better_than": "serving"}, 0.0),
        f"min: {rate:g}": ({"min": rate}, 0.0),
        f"min: {rate:g}, confidence: 90%": ({"min": rate, "confidence": "90%"}, 0.0),
    }
    return {text: (gate_rule(MetricGate.model_validate({"metric": METRIC} | gate)), change) for text, (gate, change) in documents.items()}


class World:
    """Users and their cases are the same in all runs; hits are drawn anew."""

    def __init__(self, users: int, rate: float, alike: float) -> None:
        random = np.random.default_rng(1)
        self.users, self.alike = users, alike
        self.owners = np.repeat(np.arange(users), random.choice(CASES, users))
        rates = hit_rates(random, rate, _SPREAD, users)[self.owners]
        self.rates = rates * rate / rates.mean()  # the truth is what the gate's threshold is about

    def run(self, change: float, seed: int) -> dict[str, float]:
        """The metrics that evaluate publishes of one run."""
        random = np.random.default_rng((seed, 7))
        serving = random.standard_normal(len(self.owners))
        candidate = self.alike * serving + np.sqrt(1 - self.alike**2) * random.standard_normal(len(self.owners))
        judged = {
            "serving": self._judgement(serving, self.rates),
            CANDIDATE: self._judgement(candidate, np.minimum(self.rates * (1 + change), 1)),
        }
        metrics = {f"{name}.{METRIC}": observe(judgement.ranked, [METRIC])[METRIC].mean for name, judgement in judged.items()}
        return metrics | certainties([METRIC], Evidence(judged, (), _NOBODY))[0]

    def _judgement(self, drawn: Floats, rates: Floats) -> ModelEvaluation:
        ranks = np.where(drawn < ndtri(rates), 5.0, 50.0)
        shown, count = np.zeros((self.users, SHOWN), np.int32), len(ranks)
        return ModelEvaluation(CaseRanks(self.owners, ranks, np.full(count, 1000), ranks, {}, {}, shown, np.zeros(count, bool)), {})


def verdicts(world: World, rate: float, change: float, runs: int) -> dict[str, Counter[str]]:
    """How often each gate came to each verdict; `accepted` counts inconclusive verdicts that the spec accepts."""
    rules = gates(rate)
    counts: dict[str, Counter[str]] = {text: Counter() for text in rules}
    for seed in range(runs):
        numbers = world.run(change, seed)
        for text, (gate, _) in rules.items():
            result = judge(gate, numbers, serving=True)
            counts[text][result.verdict] += 1
            counts[text]["accepted"] += result.accepted != ""
    return counts


def allowed(gate: Gate, threshold: float, change: float) -> str:
    """What the gate's confidence promises of one true change."""
    if gate.confidence is None:
        return "nothing: the value decides"
    wrong = f"{1 - gate.confidence:.0%}"
    near = abs(change - threshold) < 1e-9
    if near and gate.kind == "better_than":
        return f"at most {wrong} pass"
    return f"at most {wrong} pass and {wrong} fail" if near else f"at most {wrong} {'fail' if change > threshold else 'pass'}"


@benchmark("gate-verdicts")
def gate_verdicts(runs: int = 500, users: int = 20_000, rate: float = 0.1, alike: float = 0.9) -> Iterator[Outcome]:
    yield Fields(runs=runs, users=users, rate=rate, alike=alike)
    world = World(users, rate, alike)
    for change in CHANGES:
        counted = verdicts(world, rate, change, runs)
        for text, (gate, threshold) in gates(rate).items():
            counts = counted[text]
            note = ", ".join(f"{verdict} {100 * counts[verdict] / runs:.1f}%" for verdict in ("pass", "inconclusive", "fail"))
            accepted = f" (accepted {100 * counts['accepted'] / runs:.1f}%)" if counts["accepted"] else ""
            note = f"{note}{accepted}; promised: {allowed(gate, threshold, change)}"
            through = 100 * (counts["pass"] + counts["accepted"]) / runs
            yield Row(f"true change {change:+.0%}", text, "let through", "%", [through], note=note)


if __name__ == "__main__":
    gate_verdicts()
