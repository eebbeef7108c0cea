"""The cost of the order of an answer: 500 candidates of a catalogue of 60,000 items with ten attributes, 10 items, by kind of rule.

python -m benchmarks.order [--items 60000]
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.filters import CONTEXT, catalogue, ledger, unit_of
from benchmarks.harness import Row, benchmark
from services.gateway.attributes import Attributes
from services.gateway.candidates import Candidates, RankingRequest
from services.gateway.filtering import Filter, FilterInput
from services.gateway.ordering import arrange
from services.gateway.rules import Ordering
from services.gateway.vectors import build_vectors
from services.index.exact import ExactIndex
from shared.contracts.ordering import Order
from shared.contracts.serving import Serve
from shared.domain.entity_ids import IdHash

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
    for case, document in CASES.items():
        rules = Ordering(Order.model_validate(document), IdHash(b"bench")).at(datetime.now(UTC))
        began = time.process_time()
        for turn in range(ROUNDS):
            rows, scores = some[turn % len(some)]
            ranking_request = RankingRequest("bench", 1, K, filter, filter_input, rules, float(chance.random()))
            arrange(Candidates(ranking_request, rows, True, CANDIDATES), scores, unit)
        yield Row(case, "eyas", "CPU of an answer's order", "ms", [(time.process_time() - began) / ROUNDS * 1e3])


@benchmark("order")
def order(items: int = 60_000) -> Iterator[Row]:
    with threadpool_limits(1):  # as in a gateway
        yield from ordering(ledger(catalogue(items))[0], items)


if __name__ == "__main__":
    order()
