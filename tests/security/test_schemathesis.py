"""A sample of the fuzzing, with a seed that can be chosen; `make security` does all of it."""

from __future__ import annotations

import os

import pytest

from tests.security.fuzzing import DATABASES, SHARES, TOKENS, faults, run

CASES = int(os.environ.get("EYAS_CASES", "400"))
SEED = int(os.environ.get("EYAS_SEED", "1"))


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("token", TOKENS)
def test_every_answer_is_one_that_the_document_declares(token: str, capsys: pytest.CaptureFixture[str]) -> None:
    """One database for each token here; which one, the seed says."""
    database = DATABASES[(SEED + TOKENS.index(token)) % len(DATABASES)]
    with capsys.disabled():
        print(f"\nEYAS_SEED={SEED} EYAS_CASES={CASES}: with the token '{token}' on {database}", flush=True)  # noqa: T201
        parts = run(round(CASES * SHARES[token]), SEED, [database], [token])
    assert sum(part.cases for part in parts) >= 0.9 * CASES * SHARES[token]
    assert not faults(parts), "\n\n".join(faults(parts))
