"""Gates: four verdicts, each with its reason, by tables of cases and by properties that hold for all of them."""

from __future__ import annotations

import math
from dataclasses import replace
from statistics import NormalDist

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.domain.errors import Invalid
from shared.domain.gate import REFIT, SPEC, Gate, Silence, Verdict, judge
from shared.domain.metric import Metric, certainty, parse_metric

AT_LEAST = Gate("hr@10", "min", 0.2)
FEW = Gate("hr@10", "min", 0.2, min_users=100)
SURE = Gate("hr@10", "min", 0.2, confidence=0.9)
NOT_WORSE = Gate("hr@10", "not_worse_than", against="serving", margin=0.05, confidence=0.9)
BETTER = Gate("hr@10", "better_than", against="popularity", margin=0.1, confidence=0.9)
OWN, ERROR = "candidate.hr@10", "candidate.hr@10.se"
Z = NormalDist().inv_cdf(0.9)


def beside(value: float, other: float, own: float, others: float, between: float, against: str = "serving") -> dict[str, float]:
    return {
        OWN: value,
        f"{against}.hr@10": other,
        ERROR: own,
        f"{against}.hr@10.se": others,
        certainty(OWN, against): between,
    }


VERDICTS: list[tuple[Gate, dict[str, float], str, str]] = [
    (AT_LEAST, {OWN: 0.2}, "pass", "hr@10 is 0.2 >= 0.2"),
    (AT_LEAST, {OWN: 0.19}, "fail", "hr@10 is 0.19 < 0.2"),
    (AT_LEAST, {}, "inconclusive", "hr@10 was not measured"),
    (AT_LEAST, {OWN: math.nan}, "error", "hr@10 is nan, expected a finite number"),
    (AT_LEAST, {OWN: math.inf}, "error", "hr@10 is inf, expected a finite number"),
    (Gate("hr@10{cold_users}", "min", 0.1), {OWN: 0.2}, "inconclusive", "hr@10{cold_users} was not measured"),
    (Gate("hr@10{cold_users}", "min", 0.1), {"candidate.hr@10{cold_users}": 0.2}, "pass", "hr@10{cold_users} is 0.2 >= 0.1"),
    (Gate("hr@10", "better_than", against="popularity"), {OWN: 0.2}, "inconclusive", "popularity's hr@10 was not measured"),
    (Gate("hr@10", "better_than", against="popularity"), {OWN: 0.2, "popularity.hr@10": 0.2}, "fail", "popularity's is 0.2 (+0.0%)"),
    (Gate("hr@10", "not_worse_than", against="serving"), {OWN: 0.2, "serving.hr@10": 0.2}, "pass", "serving's is 0.2 (+0.0%)"),
    (Gate("hr@10", "better_than", against="popularity"), {OWN: 0.2, "popularity.hr@10": 0.0}, "pass", "popularity's is 0"),
    (SURE, {OWN: 0.25, ERROR: 0.01}, "pass", "hr@10 is 0.25 (0.2372 to 0.2628 with 90% confidence, standard error 0.01) >= 0.2"),
    (SURE, {OWN: 0.15, ERROR: 0.01}, "fail", "hr@10 is 0.15 (0.1372 to 0.1628 with 90% confidence, standard error 0.01) < 0.2"),
    (SURE, {OWN: 0.205, ERROR: 0.01}, "inconclusive", "standard error 0.01): uncertain whether it is at least 0.2"),
    (SURE, {OWN: 0.195, ERROR: 0.01}, "inconclusive", "standard error 0.01): uncertain whether it is at least 0.2"),
    (AT_LEAST, {OWN: 0.2, ERROR: 0.01, f"{OWN}.users": 1234}, "pass", "hr@10 is 0.2 (standard error 0.01, 1,234 users) >= 0.2"),
    (FEW, {OWN: 0.3, f"{OWN}.users": 100}, "pass", "hr@10 is 0.3 (100 users) >= 0.2"),
    (FEW, {OWN: 0.3, f"{OWN}.users": 99}, "inconclusive", "hr@10 is 0.3 (99 users): min_users is 100"),
    (FEW, {OWN: 0.1, f"{OWN}.users": 99}, "inconclusive", "hr@10 is 0.1 (99 users): min_users is 100"),
    (FEW, {OWN: 0.3, f"{OWN}.users": math.nan}, "pass", "hr@10 is 0.3 >= 0.2"),
    (SURE, {OWN: 0.25}, "inconclusive", "standard error of hr@10 was not measured"),
    (SURE, {OWN: 0.25, ERROR: math.nan}, "error", "standard error of hr@10 is nan"),
    (SURE, {OWN: 0.25, ERROR: -0.01}, "error", "standard error of hr@10 is -0.01, expected at least 0"),
    (
        NOT_WORSE,
        beside(0.21, 0.2, 0.02, 0.02, 0.004),
        "pass",
        "(+5.0%: +2.4% to +7.6% with 90% confidence, standard error of the difference 0.004)",
    ),
    (NOT_WORSE, beside(0.17, 0.2, 0.02, 0.02, 0.004), "fail", "(-15.0%: "),
    (NOT_WORSE, beside(0.192, 0.2, 0.02, 0.02, 0.004), "inconclusive", "uncertain whether it is -5.0% or more"),
    (NOT_WORSE, beside(0.21, 0.2, 0.02, 0.02, 0.03), "inconclusive", "uncertain whether it is -5.0% or more"),
    (BETTER, beside(0.3, 0.2, 0.01, 0.01, 0.01, "popularity"), "pass", "(+50.0%: "),
    (BETTER, beside(0.22, 0.2, 0.01, 0.01, 0.01, "popularity"), "inconclusive", "uncertain whether it is +10.0% or more"),
    (BETTER, beside(0.2, 0.2, 0.004, 0.004, 0.004, "popularity"), "fail", "popularity's is 0.2 (+0.0%: "),
    (BETTER, {OWN: 0.3, "popularity.hr@10": 0.2, ERROR: 0.01}, "inconclusive", "standard error of popularity's hr@10 was not measured"),
    (
        BETTER,
        {OWN: 0.3, "popularity.hr@10": 0.2, ERROR: 0.01, "popularity.hr@10.se": 0.01},
        "inconclusive",
        "standard error of the difference to popularity's hr@10 was not measured",
    ),
    (
        NOT_WORSE,
        beside(0.3, 0.2, 0.02, 0.02, 0.004) | {f"{OWN}.on.serving": 0.21, f"{OWN}.on.serving.se": 0.02, f"{OWN}.on.serving.users": 50},
        "pass",
        "hr@10 is 0.21, serving's is 0.2 (+5.0%: +2.4% to +7.6% with 90% confidence, standard error of the difference 0.004, 50 users)",
    ),
    (Gate("latency_p99", "max", 20, stage="verify", unit=" ms"), {"latency_p99": 9.5, "latency_p99.calls": 400}, "pass", "(400 calls) <="),
    (Gate("size", "max", 200, stage="verify", unit=" MiB"), {"size": 180.0}, "pass", "size is 180 MiB <= 200 MiB"),
    (Gate("size", "max", 200, stage="verify", unit=" MiB"), {"size": 200.5}, "fail", "size is 200.5 MiB > 200 MiB"),
]


@pytest.mark.requirement("G-10")
def test_a_gate_says_what_it_found(subtests: pytest.Subtests) -> None:
    for gate, metrics, verdict, reason in VERDICTS:
        with subtests.test(gate=gate, metrics=metrics, verdict=verdict, reason=reason):
            found = judge(gate, metrics, serving=True)
            assert (found.verdict, found.gate) == (verdict, str(gate))
            assert reason in found.reason


@pytest.mark.requirement("G-10")
def test_with_nothing_serving_every_other_gate_is_judged_as_ever(subtests: pytest.Subtests) -> None:
    for gate, metrics, _, _ in VERDICTS:
        if gate.against != "serving":
            with subtests.test(gate=str(gate), metrics=metrics):
                assert judge(gate, metrics, serving=False) == judge(gate, metrics, serving=True)
    assert judge(AT_LEAST, {OWN: 0.19}, serving=False).verdict is Verdict.FAIL
    assert judge(AT_LEAST, {}, serving=False).verdict is Verdict.INCONCLUSIVE


@pytest.mark.requirement("C-04")
def test_with_nothing_serving_there_is_nothing_to_be_worse_than() -> None:
    """Not even where nothing could be measured: the first version could never be registered."""
    for gate in (NOT_WORSE, Gate("hit_rate.snips", "not_worse_than", against="serving", confidence=0.9)):
        found = judge(gate, {}, serving=False)
        assert (found.verdict, found.reason) == (Verdict.PASS, "no version serves yet: nothing to compare with")


ACCEPTED = [
    # the difference is within the uncertainty, too few users, surely worse, not measured, broken
    (beside(0.192, 0.2, 0.02, 0.02, 0.004), Verdict.INCONCLUSIVE, SPEC),
    (beside(0.21, 0.2, 0.02, 0.02, 0.004) | {f"{OWN}.users": 9}, Verdict.INCONCLUSIVE, SPEC),
    (beside(0.17, 0.2, 0.02, 0.02, 0.004), Verdict.FAIL, ""),
    ({OWN: 0.2}, Verdict.INCONCLUSIVE, ""),
    (beside(math.nan, 0.2, 0.02, 0.02, 0.004), Verdict.ERROR, ""),
]


def test_the_spec_accepts_what_was_measured_and_is_inconclusive_and_nothing_else(subtests: pytest.Subtests) -> None:
    gate = replace(NOT_WORSE, inconclusive="accept", min_users=10)
    for metrics, verdict, accepted in ACCEPTED:
        with subtests.test(metrics=metrics, verdict=verdict):
            found = judge(gate, metrics, serving=True)
            assert (found.verdict, found.accepted) == (verdict, accepted)
            assert judge(replace(gate, inconclusive="reject"), metrics, serving=True).accepted == ""


SILENCES: list[tuple[Silence, str, str]] = [
    (Silence(missing={"candidate.hr@10": "too few users"}), "inconclusive", "hr@10 was not measured: too few users"),
    (Silence(missing={"candidate": "no cases"}), "inconclusive", "hr@10 was not measured: no cases"),
    (Silence(broken={"candidate.hr@10": "OSError: gone"}), "error", "hr@10 could not be measured: OSError: gone"),
    (Silence(missing={"candidate": "no"}, broken={"candidate": "OSError: gone"}), "error", "hr@10 could not be measured: OSError: gone"),
    (Silence(broken={"serving": "OSError: gone"}), "inconclusive", "hr@10 was not measured"),
]


def test_what_is_not_there_says_why(subtests: pytest.Subtests) -> None:
    for silence, verdict, reason in SILENCES:
        with subtests.test(silence=silence, verdict=verdict, reason=reason):
            found = judge(AT_LEAST, {}, serving=True, silence=silence)
            assert (found.verdict, found.reason) == (verdict, reason)


def test_what_went_wrong_with_the_other_one_is_an_error_too() -> None:
    gate = Gate("hr@10", "not_worse_than", against="serving")
    found = judge(gate, {OWN: 0.2}, serving=True, silence=Silence(broken={"serving": "ValueError: no such column"}))
    assert (found.verdict, found.reason) == (Verdict.ERROR, "serving's hr@10 could not be measured: ValueError: no such column")


shares = st.floats(0, 1)
errors = st.floats(0, 0.5)
factors = st.floats(0, 0.9)
kinds = st.sampled_from(["better_than", "not_worse_than"])


@given(shares, shares, errors, st.floats(0.51, 0.999))
def test_certainty_only_adds_doubt(value: float, bound: float, error: float, confidence: float) -> None:
    """What is certain agrees with the value itself; more confidence, or a greater error, only takes certainty away."""
    metrics = {OWN: value, ERROR: error}
    plain = judge(Gate("hr@10", "min", bound), metrics, serving=True).verdict
    sure = judge(Gate("hr@10", "min", bound, confidence=confidence), metrics, serving=True).verdict
    assert sure in (plain, Verdict.INCONCLUSIVE)
    wider = judge(Gate("hr@10", "min", bound, confidence=confidence), {**metrics, ERROR: 2 * error + 0.01}, serving=True).verdict
    assert wider in (sure, Verdict.INCONCLUSIVE)


@given(kinds, shares, shares, errors, errors, st.floats(0, 1), factors)
def test_a_comparison_is_as_sure_as_its_difference(
    kind: str, value: float, other: float, own: float, others: float, shared: float, margin: float
) -> None:
    """Whatever both errors have in common: the verdict is that of an interval around `value - factor * other` by its own error."""
    together = shared * own * others
    between = math.sqrt(max(own**2 + others**2 - 2 * together, 0.0))
    gate = Gate("hr@10", kind, against="serving", margin=margin, confidence=0.9)  # type: ignore[arg-type]
    found = judge(gate, beside(value, other, own, others, between), serving=True).verdict
    factor = 1 + margin if kind == "better_than" else 1 - margin
    spread = math.sqrt(max(own**2 + (factor * others) ** 2 - 2 * factor * together, 0.0))
    middle = value - factor * other
    if abs(abs(middle) - Z * spread) < 1e-6:
        return
    wanted = Verdict.INCONCLUSIVE if abs(middle) < Z * spread else Verdict.PASS if middle > 0 else Verdict.FAIL
    assert found is wanted


@given(st.dictionaries(st.sampled_from([OWN, ERROR, "serving.hr@10", "serving.hr@10.se", certainty(OWN, "serving")]), st.floats()))
def test_whatever_was_published_there_is_a_verdict_and_a_sentence(metrics: dict[str, float]) -> None:
    for gate in (AT_LEAST, SURE, NOT_WORSE):
        found = judge(gate, metrics, serving=True)
        assert found.reason and "\n" not in found.reason
        needs = {OWN} | ({ERROR} if gate.confidence else set()) | (set(beside(0, 0, 0, 0, 0)) if gate.against else set())
        if not needs <= metrics.keys() or not all(math.isfinite(metrics[name]) for name in needs):
            assert found.verdict in (Verdict.INCONCLUSIVE, Verdict.ERROR)


METRICS: list[tuple[str, Metric]] = [
    ("hr@10", Metric("hr", 10)),
    ("ndcg@10/99", Metric("ndcg", 10, 99)),
    ("recall@500", Metric("recall", 500)),
    ("auc", Metric("auc")),
    ("hr@10/99{cold_users}", Metric("hr", 10, 99, "cold_users")),
    ("hr@10{genre=Sci-Fi}", Metric("hr", 10, None, "genre=Sci-Fi")),
]


def test_a_metric_is_read_by_its_name_and_written_back(subtests: pytest.Subtests) -> None:
    for name, metric in METRICS:
        with subtests.test(name=name, metric=metric):
            assert parse_metric(name) == metric
            assert str(metric) == name
            assert str(metric.unsliced) == name.split("{", maxsplit=1)[0]


def test_what_is_no_metric_is_refused(subtests: pytest.Subtests) -> None:
    for name in ["", "hr", "hr@", "hr@0", "hr@10/", "hr@10{}", "hr@10{a}{b}", "auc@10", "hits@10", "hr@10 ", "hr@10{a"]:
        with subtests.test(name=name), pytest.raises(Invalid, match="is not a metric: expected one such as hr@10"):
            parse_metric(name)


@pytest.mark.parametrize(
    ("refit", "error", "verdict"),
    [(0.26, 0.01, Verdict.PASS), (0.24, 0.01, Verdict.PASS), (0.22, 0.01, Verdict.FAIL), (0.22, 0.02, Verdict.PASS)],
)
def test_a_refit_fails_only_where_it_is_surely_worse(refit: float, error: float, verdict: Verdict) -> None:
    metrics = {"refit.hr@10": refit, "refit.candidate.hr@10": 0.25, "refit.hr@10.se_to.candidate": error, "refit.hr@10.users": 1200.0}
    found = judge(REFIT, metrics, serving=False)
    assert found.verdict is verdict
    assert found.reason == (
        f"hr@10 of the refitted model is {refit:g}, candidate's is 0.25 (standard error of the difference {error:g}, 1,200 users)"
    )
    few = judge(REFIT, metrics | {"refit.hr@10": 0.0, "refit.hr@10.users": 29.0}, serving=False)
    assert few.verdict is Verdict.PASS and few.reason.endswith("29 users): too few to judge, min_users is 30")


def test_a_refit_that_was_not_measured_is_inconclusive() -> None:
    assert judge(REFIT, {"candidate.hr@10": 0.3}, serving=False).verdict is Verdict.INCONCLUSIVE
