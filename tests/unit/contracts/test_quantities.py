"""A quantity that is written is read back as the same value, exactly."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from shared.contracts.quantities import (
    LONGEST,
    MOST_CPU,
    MOST_MEMORY,
    Duration,
    Fraction,
    NumberComparison,
    parse_cpu,
    parse_duration,
    parse_fraction,
    parse_memory,
    parse_rule,
    write_cpu,
    write_duration,
    write_memory,
)

finite = st.floats(allow_nan=False, allow_infinity=False)
DURATIONS: TypeAdapter[Any] = TypeAdapter(Duration)
FRACTIONS: TypeAdapter[Any] = TypeAdapter(Fraction)


@given(st.sampled_from([">=", ">", "<=", "<", "=="]), finite)
def test_a_rule_is_read_back_as_it_was(compare: str, bound: float) -> None:
    assert parse_rule(str(NumberComparison(compare, bound))) == NumberComparison(compare, bound)


RULE_TEXTS = [(4, ">= 4"), (1e6, ">= 1000000"), (3.1415926535, ">= 3.1415926535"), (1e300, ">= 1e+300"), (1e-7, ">= 1e-07")]


def test_a_rule_is_written_as_people_write_it(subtests: pytest.Subtests) -> None:
    for bound, written in RULE_TEXTS:
        with subtests.test(bound=bound):
            assert str(NumberComparison(">=", bound)) == written


def test_a_rule_without_a_finite_number_is_refused(subtests: pytest.Subtests) -> None:
    for said in (">= 1e999", ">= nan", ">= inf", "=> 4", 4, None):
        with subtests.test(said=said), pytest.raises(ValueError, match="expected a comparison"):
            parse_rule(said)


@given(st.integers(min_value=1, max_value=LONGEST // timedelta(milliseconds=1)))
def test_a_duration_is_read_back_as_it_was(milliseconds: int) -> None:
    duration = timedelta(milliseconds=milliseconds)
    assert parse_duration(write_duration(duration)) == duration
    assert DURATIONS.validate_python(DURATIONS.dump_python(duration)) == duration


@given(st.timedeltas())
def test_a_duration_that_cannot_be_kept_is_refused(duration: timedelta) -> None:
    if timedelta(0) < duration <= LONGEST and duration.microseconds % 1000 == 0:
        assert parse_duration(duration) == duration
        return
    for refuses in (parse_duration, write_duration):
        with pytest.raises(ValueError, match="expected a duration"):
            refuses(duration)


def test_what_is_no_duration_is_refused(subtests: pytest.Subtests) -> None:
    for said in ("0s", "0.0004s", "3661d", "0.5ms", "-1s", "9" * 5000 + "d", "10", 10, None):
        with subtests.test(said=said), pytest.raises(ValueError, match="expected a duration"):
            parse_duration(said)


DURATION_TEXTS = [("90s", "90s"), ("0.5h", "30m"), ("2w", "14d"), ("1.5s", "1500ms"), ("24h", "1d")]


def test_a_duration_is_written_in_the_largest_unit_that_fits(subtests: pytest.Subtests) -> None:
    for said, written in DURATION_TEXTS:
        with subtests.test(said=said):
            assert write_duration(parse_duration(said)) == written


@given(finite.filter(lambda value: abs(value) < 1e300))
def test_a_fraction_is_read_back_as_it_was(value: float) -> None:
    assert parse_fraction(FRACTIONS.dump_python(FRACTIONS.validate_python(value))) == value


def test_what_is_no_finite_fraction_is_refused(subtests: pytest.Subtests) -> None:
    for said in (float("nan"), float("inf"), 10**400, "9" * 400 + "%", True, "0.1"):
        with subtests.test(said=said), pytest.raises(ValueError, match="expected a percentage"):
            parse_fraction(said)


@given(st.integers(min_value=1024, max_value=MOST_MEMORY >> 10))
def test_an_amount_of_memory_is_read_back_as_it_was(kibibytes: int) -> None:
    assert parse_memory(write_memory(kibibytes << 10)) == kibibytes << 10
    assert parse_memory(kibibytes << 10) == kibibytes << 10


@given(st.integers(min_value=1, max_value=MOST_CPU))
def test_a_number_of_cores_is_read_back_as_it_was(thousandths: int) -> None:
    assert parse_cpu(write_cpu(thousandths)) == thousandths


def test_amounts_are_written_as_people_write_them() -> None:
    assert [parse_memory(said) for said in ("512Mi", "1.5Gi", "2 Ti")] == [512 << 20, 3 << 29, 2 << 40]
    assert [write_memory(amount) for amount in (512 << 20, 3 << 29, 2 << 40)] == ["512Mi", "1536Mi", "2Ti"]
    assert [parse_cpu(said) for said in (2, 0.5, "500m", "1.25")] == [2000, 500, 500, 1250]
    assert [write_cpu(amount) for amount in (2000, 500, 1250)] == ["2", "500m", "1250m"]


def test_an_amount_of_memory_that_means_nothing_is_refused(subtests: pytest.Subtests) -> None:
    for said in ("32G", "32", "-1Gi", "0Mi", "1Ki", "65Ti", "Gi", "1.0001Ki", None, True, 0, 1.5, []):
        with subtests.test(said=said), pytest.raises(ValueError, match="expected an amount of memory"):
            parse_memory(said)


def test_a_number_of_cores_that_means_nothing_is_refused(subtests: pytest.Subtests) -> None:
    for said in ("0", 0, "-1", "2 cores", "0.0001", 1e-5, 2000, "0.5m", None, True, []):
        with subtests.test(said=said), pytest.raises(ValueError, match="expected"):
            parse_cpu(said)
