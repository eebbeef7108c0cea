"""One feature graph, two runtimes: ONNX makes of drawn rows the features that polars makes of them.

Codes are equal; numbers to 1e-6 relative. `test_nvtabular.py` compares NVTabular with polars by the same rules, and `tests/unit` has a
few fixed rows.
"""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings

from tests.support.feature_runtimes import (
    CASES,
    DRAWN_ITEM,
    DRAWN_PAGE,
    DRAWN_ROW,
    EXAMPLES,
    GROUPS,
    Values,
    assert_onnx_equals_polars,
    drawn,
)


def compare_drawn_rows(case: str) -> None:
    @settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck))
    @given(seen=drawn(DRAWN_ROW, 1, 25), new=drawn(DRAWN_ROW, 1, 8), films=drawn(DRAWN_ITEM, 6, 6), viewed=drawn(DRAWN_PAGE, 0, 12))
    def agree(seen: Values, new: Values, films: Values, viewed: Values) -> None:
        assert_onnx_equals_polars(CASES[case], seen, new, films, viewed)

    agree()


@pytest.mark.requirement("G-14", "G-15", "T-04", "T-05", "T-06")
@pytest.mark.timeout(900)
@pytest.mark.parametrize("operator", GROUPS)
def test_onnx_makes_the_features_of_polars(operator: str, subtests: pytest.Subtests) -> None:
    for case in GROUPS[operator]:
        with subtests.test(case):
            compare_drawn_rows(case)
