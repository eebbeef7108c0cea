"""What the order of an answer costs: 500 candidates of a catalogue of 60,000 items with ten attributes, 10 items, by kind of rule.

python -m benchmarks.order [--items 60000]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.filters import CONTEXT, catalogue, ledger, unit_of
from benchmarks.report import Row, publish
from services.gateway.attributes import Attributes
from services.gateway.candidates import Candidates, RankingRequest
from services.gateway.filtering import Filter, FilterInput
from services.gateway.ordering import arrange
from services.gateway.rules import Ordering
from services.gateway.vectors import build_vectors
from services.index.exact import ExactIndex
from shared.contracts.ordering import Order
from shared.contracts.serving import Serve

CANDIDATES, K, WIDTH, ROUNDS = 500, 10, 32, 2_000
_RULES: list[dict[str, Any]] = [{"boost": "language == 'de'"}, {"bury": "price > 50"}, {"pin": 7, "at": 3}]
_CAPS: list[dict[str, Any]] = [{"quota": "genres contains 'Horror'", "at_most": 2}, {"each": "studio", "at_most": 1}]
CASES: Mapping[str, Mapping[str, Any]] = {
    "scores alone": {"explore": {"rate": 0}},
    "scores, explored (the default)": {},
    "a boost, a bury, a pin": {"rules": _RULES},
    "a quota, a cap per studio": {"rules": _CAPS},
    "diversity": {"diversity": 0.3},
    "all of it": {"rules": [*_RULES, *_CAPS], "diversity": 0.3},
}


def ordering(state: Attributes, count: int) -> Iterator[Row]:
    chance = np.random.default_rng(5)
    vectors = chance.standard_normal((count, WIDTH)).astype(np.float32)
    plain = unit_of(count)
    unit = replace(plain, vectors=build_vectors(plain.items, vectors, plain.items[:1], vectors[:1], ExactIndex(plain.items, vectors)))
    filter, filter_input = Filter(Serve()), FilterInput(state, CONTEXT, frozenset())
    some = [(chance.choice(count, CANDIDATES, replace=False), chance.random(CANDIDATES).astype(np.float32)) for _ in range(100)]
    for case, said in CASES.items():
        rules = Ordering(Order.model_validate(said)).at(datetime.now(UTC))
        began = time.process_time()
        for turn in range(ROUNDS):
            rows, scores = some[turn % len(some)]
            ranking_request = RankingRequest("bench", 1, K, filter, filter_input, rules, float(chance.random()))
            arrange(Candidates(ranking_request, rows, True, CANDIDATES), scores, unit)
        yield Row(case, "eyas", "CPU of an answer's order", "ms", [(time.process_time() - began) / ROUNDS * 1e3])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", type=int, default=60_000)
    asked = parser.parse_args()
    with threadpool_limits(1):  # as in a gateway
        publish("order", list(ordering(ledger(catalogue(asked.items))[0], asked.items)))


if __name__ == "__main__":
    main()
