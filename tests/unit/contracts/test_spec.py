"""What users write is understood, or refused in one line that names the place and the remedy."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from shared.contracts import spec as spec_module
from shared.contracts.ordering import CampaignsFile
from shared.contracts.plans import retrain_plan, rollout_plan, run_plan
from shared.contracts.spec import RecommenderSpec, parse_spec
from shared.domain.errors import Invalid, Unsupported
from tests.support.complete_spec import COMPLETE

SPEC = """
apiVersion: eyas/v1
name: movies
data:
  interactions: {uri: ratings.parquet, also: events}
  items: {uri: movies.parquet, key: movieId}
schema: {user: userId, item: movieId, time: timestamp, label: {column: rating, positive: ">= 4"}}
features:
  - categorify: [userId, movieId]
    min_count: 2
  - multi_hot: genres
    separator: "|"
gates:
  - {metric: hr@10, better_than: popularity}
  - {metric: ndcg@10, not_worse_than: serving, by: 5%}
  - {metric: hr@10/99, min: 0.2}
  - {parity: 1e-5}
  - {latency_p99: 20ms, batch: 500}
  - {latency_p50: 5ms}
  - {throughput: 100000}
  - {memory: 512Mi}
rollout: {steps: [1%, 0.5], analysis: {max_harm: 2%, window: 10m}}
retrain: {on: [drift: {psi: 0.3}, kpi: {hit_rate: -20%}], mode: warm, cooldown: 1h}
"""


def test_a_spec_survives_its_own_document() -> None:
    spec = parse_spec(SPEC)
    assert parse_spec(json.dumps(spec.document())) == spec


def test_a_split_is_a_share_or_a_duration(subtests: pytest.Subtests) -> None:
    for written, kept in (("20%", 0.2), ("7d", "7d"), ("0.1", 0.1)):
        with subtests.test(written=written):
            spec = parse_spec(f"{SPEC}split: {{test: {written}}}\n")
            assert spec.document()["split"]["test"] == kept
            assert parse_spec(json.dumps(spec.document())) == spec


def test_the_parameters_are_those_of_the_family() -> None:
    lines = SPEC.splitlines()
    short = "\n".join(lines[: lines.index("features:")])
    counting = parse_spec(f"{short}\nmodel: {{family: popularity}}\ngates: [parity: 1e-5]")
    assert counting.document()["model"]["params"] == {}
    assert parse_spec(json.dumps(counting.document())) == counting
    assert parse_spec(f"{short}\nmodel: {{params: {{layers: [8]}}}}").document()["model"]["params"]["layers"] == [8]


def _short(*lines: str) -> str:
    kept = [line for line in SPEC.split("\n") if not line.startswith(("gates:", "  - {"))]
    return "\n".join([*kept, *lines])


@pytest.mark.requirement("G-01")
def test_candidates_are_retrieved_where_the_spec_says_so() -> None:
    assert parse_spec(SPEC).serve.retrieve is None
    found = parse_spec(_short("gates: [{metric: recall@300, min: 0.8}]", "serve: {retrieve: {candidates: 300}}"))
    assert found.serve.retrieve is not None
    assert found.serve.retrieve.candidates == 300
    assert parse_spec(json.dumps(found.document())) == found
    assert parse_spec(_short("serve: {retrieve: {}}")).serve.retrieve.candidates == 500  # type: ignore[union-attr]
    assert parse_spec(_short("serve: {retrieve: {fallback: popular}}")) == parse_spec(_short("serve: {retrieve: {}}"))


INVALID_RETRIEVALS = [
    (("serve: {retrieve: {candidates: 0}}",), "serve.retrieve.candidates"),
    (("serve: {retrieve: {candidates: 10001}}",), "serve.retrieve.candidates"),
    (("serve: {retrieve: {candidates: many}}",), "serve.retrieve.candidates"),
    (("serve: {retrieve: 500}",), "serve.retrieve"),
    (("serve: {retrieve: {fallback: none}}",), "serve.retrieve.fallback: expected 'popular', got 'none'"),
    (("serve: {retrieve: {candidate: 5}}",), "unknown field 'candidate': did you mean 'candidates'?"),
    (("gates: [{metric: recall@500, min: 0.8}]",), "gates: 'recall@500' is not measured; set serve.retrieve"),
    (
        ("gates: [{metric: recall@50, min: 0.8}]", "serve: {retrieve: {candidates: 100}}"),
        "gates: 'recall@50' is not measured; serve.retrieve gives recall@100",
    ),
]


def test_a_wrong_retrieval_is_refused_by_its_place(subtests: pytest.Subtests) -> None:
    for lines, said in INVALID_RETRIEVALS:
        with subtests.test(lines=lines), pytest.raises(Invalid, match=re.escape(said)):
            parse_spec(_short(*lines))


def test_what_least_squares_has_no_use_for_is_refused() -> None:
    found = parse_spec(_short("model: {family: mf, params: {width: 32}, train: {seed: 7}}"))
    solved = {"width": 32, "loss": "als", "unobserved": 0.4, "regularisation": None, "sweeps": 10}
    assert found.document()["model"]["params"].items() >= solved.items()
    with pytest.raises(Invalid, match="train: 'epochs' has no effect: mf has its own passes"):
        parse_spec(_short("model: {family: mf, train: {epochs: 7}}"))


def test_only_name_data_and_schema_are_required() -> None:
    lines = SPEC.splitlines()
    short = "\n".join(lines[: lines.index("features:")])
    assert parse_spec(short).operators()[0].categorify == ("userId", "movieId")  # type: ignore[union-attr]


def test_the_plans_say_what_the_spec_says() -> None:
    spec = parse_spec(SPEC)
    assert [str(gate) for gate in run_plan(spec).gates] == [
        "hr@10 better than popularity",
        "ndcg@10 not worse than serving by 5.00%",
        "hr@10/99 at least 0.2",
        "parity at most 1e-05",
        "latency_p99@500 at most 20 ms",
        "latency_p50 at most 5 ms",
        "throughput at least 100000 rows/s",
        "memory at most 512 MiB",
        "hr@10 not worse than candidate with 99% confidence",
    ]
    assert [step.weight for step in rollout_plan(spec).steps] == [0.01, 0.5]
    plan = retrain_plan(spec)
    assert (plan.drift, plan.kpi, plan.mode, plan.kpi_mode) == ({"psi": 0.3, "new": 0.05, "nulls": 0.05}, {"hit_rate": 0.2}, "warm", "full")
    assert plan.cooldown == timedelta(hours=1)


SPEC_FAULTS = [
    ("name: movies", "name: movies\nmodle: {}", "unknown field 'modle': did you mean 'model'?"),
    (
        "name: movies",
        "name: Movies!",
        "name: expected lower-case letters, digits and dashes, at most 40, beginning with a letter, got 'Movies!'",
    ),
    ("name: movies\n", "", "name: field required"),
    ("multi_hot: genres", "multihot: genres", "features.1: unknown operator 'multihot': did you mean 'multi_hot'?"),
    ("multi_hot: genres", "multi_hot: movieId", "features: column 'movieId' is produced twice"),
    ("[userId, movieId]", "[userId]", "features: the model needs categorify of 'movieId'"),
    ("separator:", "seperator:", "features.1: unknown field 'seperator': did you mean 'separator'?"),
    ("hr@10/99", "hit@10", "gates.2.metric: expected a metric such as hr@10"),
    ("by: 5%", "by: -5%", "gates.1.by: expected at least 0, got -0.05"),
    ("min: 0.2", "min: 0.2, better_than: popularity", "exactly one of min, better_than, not_worse_than"),
    ("[1%, 0.5]", "[50%, 10%]", "rollout: steps must increase"),
    ("window: 10m", "window: 10", "rollout.analysis.window: expected a duration such as 30s"),
    ("max_harm: 2%", "max_harm: much", "rollout.analysis.max_harm: expected a percentage such as 2%"),
    ('">= 4"', "4", "schema.label.positive: expected a comparison such as '>= 4'"),
    ("mode: warm", "mode: hot", "retrain.mode: expected 'full', 'warm' or 'auto', got 'hot'"),
    ("uri: movies.parquet", "uri: [", "not valid YAML at line"),
    ("name: movies", "name: movies\nname: films", "'name' is given twice"),
    ("name: movies", "name: &a movies\nother: *a", "aliases are not allowed; write the value out"),
    ("name: movies", "{[a]: 1}: 2", "not valid YAML"),
    ("name: movies", "name: 2020-13-45", "not valid YAML: month must be in 1..12"),
    ("name: movies", f"name: {'[' * 5000}", "values nested more than 100 deep"),
    ("window: 10m", "window: 99999999999999d", "above 0 and at most 3660d"),
    ("time: timestamp", "time: rating", "schema: label: column 'rating' is already the time; name another column"),
    ("window: 10m", "window: 0s", "rollout.analysis.window: expected a duration above 0"),
    ("window: 10m", "window: 0.5ms", "rollout.analysis.window: expected a duration of whole milliseconds"),
    ("also: events", "since: 3661d", "data.interactions.since: expected a duration above 0 and at most 3660d"),
    ("name: movies", "name: movies\nsplit: {test: 0d}", "split.test: expected a duration above 0"),
    ('">= 4"', "'>= 1e999'", "schema.label.positive: expected a comparison with a finite number"),
    (
        "name: movies",
        "name: movies\nmodel: {framework: [torch]}",
        "model.framework: expected 'tensorflow', 'torch' or 'jax', got a list",
    ),
    ("name: movies", "name: movies\nmodel: {family: [mlp]}", "model.family: expected text, got a list"),
    (
        "gates:",
        "model: {family: popularity}\ngates:",
        "gates: the family 'popularity' cannot be better than popularity; set other gates",
    ),
    ("name: movies", "name: movies\nmodel: {family: popularity, params: {layers: [8]}}", "model.params: unknown field 'layers'"),
    (
        "better_than: popularity",
        "better_than: baseline",
        "gates: no baseline to compare with; set model.baseline, such as item",
    ),
    (
        "name: movies",
        "name: movies\nmodel: {family: popularity, train: {epochs: 9}}",
        "model: train: 'epochs' has no effect: popularity only counts; leave it out",
    ),
    ("name: movies", "name: movies\nmodel: {params: {layer: [8]}}", "model.params: unknown field 'layer': did you mean 'layers'?"),
    ("- {parity: 1e-5}", "- parity", "gates.3: expected one gate such as {metric: hr@10, better_than: popularity}"),
    ("{parity: 1e-5}", "{parity: 1e-5, latency_p99: 1s}", "gates.3: expected one gate per entry, got parity and latency_p99"),
    (
        "- multi_hot: genres",
        "- categorify: [x]\n    multi_hot: genres",
        "expected one operator per entry, got categorify and multi_hot",
    ),
    ("drift: {psi: 0.3}", "kpi: {hit_rate: -30%}", "retrain: on: 'kpi' is given twice"),
    ("user: userId", "user: user id", "schema.user: expected a column's name: letters, digits and underscores"),
    ("apiVersion:", "api_version:", "unknown field 'api_version': did you mean 'apiVersion'?"),
    ("schema:", "schema_:", "unknown field 'schema_': did you mean 'schema'?"),
    ("name: movies", "name: mo\0vies", "not valid YAML: control characters are not allowed"),
    ("name: movies", '"na\\nme": movies', "unknown field 'na me'"),
    ("min: 0.2", "min: 1.2", "gates.2.min: expected at most 1, got 1.2"),
    ("max_harm: 2%", f"max_harm: {'9' * 400}", "rollout.analysis.max_harm: expected a percentage"),
    ("name: movies", f"name: movies  # {'x' * 65536}", f"bytes; a spec has at most {64 * 1024}"),
    ("psi: 0.3", "psi: .nan", "retrain.on.0.drift.psi: expected a finite number, got nan"),
]


def test_a_fault_is_named_with_its_place_and_remedy(subtests: pytest.Subtests) -> None:
    for before, after, said in SPEC_FAULTS:
        with subtests.test(before=before, after=after):
            assert before in SPEC
            with pytest.raises(Invalid) as caught:
                parse_spec(SPEC.replace(before, after), "spec.yaml")
            assert str(caught.value).startswith("spec.yaml: ")
            assert said in str(caught.value)
            assert "\n" not in str(caught.value)


def test_of_many_faults_the_first_ten_are_named_and_the_rest_counted() -> None:
    with pytest.raises(Invalid) as caught:
        parse_spec(SPEC.replace("[1%, 0.5]", f"[{', '.join(['1%'] + ['much'] * 14)}]"))
    assert str(caught.value).count("expected a share") == 10
    assert str(caught.value).endswith("; and 4 more")


def test_what_is_known_is_said_in_the_names_that_users_write() -> None:
    with pytest.raises(Invalid, match="known: apiVersion, data, ") as caught:
        parse_spec(SPEC.replace("name: movies", "qqqq: movies"))
    assert "schema_" not in str(caught.value)
    assert "api_version" not in str(caught.value)


def test_a_label_rule_is_kept_exactly(subtests: pytest.Subtests) -> None:
    for bound in (1_000_000, 3.1415926535, 1e-7, 1e300, -0.5):
        with subtests.test(bound=bound):
            spec = parse_spec(SPEC.replace('">= 4"', f'">= {bound}"'))
            assert spec.positive().bound == bound
            assert RecommenderSpec.model_validate(spec.document()) == spec


def test_a_spec_that_would_not_be_read_back_the_same_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = RecommenderSpec.document
    monkeypatch.setattr(RecommenderSpec, "document", lambda spec: kept(spec) | {"name": "films"})
    with pytest.raises(Invalid, match="too many digits to be stored exactly"):
        parse_spec(SPEC)


@pytest.mark.parametrize("error", [TypeError("unhashable"), RecursionError("too deep"), OverflowError("too large")])
def test_what_no_validator_foresaw_is_a_fault_of_the_text(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def fails(*_: object) -> None:
        raise error

    monkeypatch.setattr(spec_module, "read", fails)
    with pytest.raises(Invalid, match=f"spec: cannot be read: {error}"):
        parse_spec(SPEC)


def test_when_training_ends_can_be_said_and_only_where_it_has_an_effect() -> None:
    said = "validation: 5%, early_stop: {metric: hr@10/99, patience: 2}, target: {value: 0.8}, checkpoint: {every: 30s, steps: 100}"
    train = parse_spec(_short(f"model: {{train: {{{said}}}}}")).model.train
    assert (train.compared_by, train.ranked, train.batch_size, train.validation) == ("hr@10/99", {"hr@10/99"}, None, 0.05)
    assert train.checkpoint is not None and train.checkpoint.every.total_seconds() == 30
    assert parse_spec(_short("model: {train: {checkpoint: null}}")).model.train.checkpoint is None
    by_rule = parse_spec(_short("model: {preset: ml-1m-neumf, train: {batch_size: auto, early_stop: {metric: ndcg@10}}}")).model.train
    assert (by_rule.batch_size, by_rule.validation, by_rule.ranked) == (None, 0.05, {"ndcg@10"})
    for wrong, why in (
        (
            "early_stop: {}, validation: 0",
            "model.train: 'early_stop' has no effect: no rows are held out; set validation, such as 0.05",
        ),
        ("target: {value: 0.8}, validation: 0%", "model.train: 'target' has no effect: no rows are held out"),
        ("validate_from: 2", "model.train: 'validate_from' has no effect: no rows are held out"),
        ("validation: 0.1, validate_from: 6", "model.train: validate_from: 6 is greater than epochs, 5"),
        (
            "validation: 0.1, early_stop: {metric: hr@5}",
            "model.train.early_stop.metric: expected 'loss', 'auc', 'hr@10/99', 'ndcg@10/99', 'hr@10' or 'ndcg@10'",
        ),
        (
            "early_stop: {metric: hr@10}, target: {metric: hr@10/99, value: 1}",
            "model.train: early_stop.metric and target.metric must rank among the same items; use /99 in both or in neither",
        ),
        ("batch_size: all", "model.train.batch_size: expected a number of rows such as 8192, or 'auto', got 'all'"),
        ("batch_size: 0", "model.train.batch_size: "),
        ("early_stop: {patients: 3}", "model.train.early_stop: unknown field 'patients': did you mean 'patience'?"),
    ):
        with pytest.raises(Invalid) as refused:
            parse_spec(_short(f"model: {{train: {{{wrong}}}}}"))
        assert why in str(refused.value)
    for wrong, why in (
        ("mixed_precision: half", "model.train.mixed_precision: expected true, false, 'bfloat16' or 'float16', got 'half'"),
        ("mixed_precision: float16, loss_scale: 0", "model.train.loss_scale: expected 'dynamic' or a number from 1 to 16777216, got 0"),
        ("mixed_precision: float16, loss_scale: much", "expected 'dynamic' or a number from 1 to 16777216, got 'much'"),
        ("mixed_precision: float16, loss_scale: true", "expected 'dynamic' or a number from 1 to 16777216, got True"),
        ("mixed_precision: true, loss_scale: 128", "model.train: 'loss_scale' has no effect without float16"),
        ("compile: fast", "model.train.compile: expected true, false or 'graphs', got 'fast'"),
        ("compile: graphs", "model.train: compile: graphs needs batches on the device; set resident: true, or compile: true"),
        ("mixed_precision: float16, processes: 2", "mixed_precision: float16 does not support several processes"),
    ):
        with pytest.raises(Invalid) as refused:
            parse_spec(_short(f"model: {{train: {{{wrong}}}}}"))
        assert why in str(refused.value)
    with pytest.raises(Invalid, match=r"train\.resident: tensorflow reads batches from the host; set framework: torch, or leave it out"):
        parse_spec(_short("model: {train: {resident: true}}"))
    with pytest.raises(Invalid, match=r"train\.resident: several processes read batches from the host"):
        parse_spec(_short("model: {framework: torch, train: {resident: true, processes: 2}}"))
    with pytest.raises(Invalid, match="train: 'compile' has no effect: jax compiles every step; leave it out"):
        parse_spec(_short("model: {framework: jax, train: {compile: true}}"))
    with pytest.raises(Invalid, match="'framework' has no effect: mf has its own passes"):
        parse_spec(_short("model: {family: mf, framework: jax}"))
    with pytest.raises(Invalid, match="train: 'validation' has no effect: mf has its own passes"):
        parse_spec(_short("model: {family: mf, train: {early_stop: {}, validation: 0.1}}"))


def test_a_complete_spec_is_accepted_as_it_stands() -> None:
    spec = parse_spec(COMPLETE)
    assert (spec.model.train.batch_size, spec.model.train.ranked, spec.model.train.validation) == (None, {"ndcg@10"}, 0.05)
    assert spec.serve.order.unread == "s3://lake/campaigns.yaml"
    assert {"calendar": {"of": "timestamp", "parts": ("hour",)}} in [one.model_dump() for one in spec.operators()]


def test_campaigns_by_uri_are_read_once_and_count_as_campaigns_before() -> None:
    spec = parse_spec(_short("serve: {order: {campaigns: s3://lake/campaigns.yaml}}"))
    assert (spec.serve.order.unread, spec.serve.order.campaigns) == ("s3://lake/campaigns.yaml", ())
    text = b"[{name: a, from: 2026-12-01T00:00:00Z, until: 2026-12-25T00:00:00Z, rules: [{pin: 815}]}]"
    found = spec.with_campaigns(text)
    assert (found.serve.order.unread, [one.name for one in found.serve.order.campaigns]) == (None, ["a"])
    assert found.serve.order.campaigns_from == CampaignsFile(uri="s3://lake/campaigns.yaml", sha256=hashlib.sha256(text).hexdigest())
    assert RecommenderSpec.model_validate(found.document()) == found
    for order, said in (
        ("{campaigns: a.yaml, campaigns_from: {uri: b.yaml}}", "the URI is set here and in campaigns_from; leave campaigns_from out"),
        ("{campaigns: a.csv}", "expected the URI of a file of campaigns, whose name ends in .yaml"),
        (f"{{campaigns: {text.decode()}, campaigns_from: {{uri: a.yaml}}}}", "without sha256 the file is read again; leave out campaigns"),
    ):
        with pytest.raises(Invalid, match=re.escape(said)):
            parse_spec(_short(f"serve: {{order: {order}}}"))
    with pytest.raises(Invalid, match=r"off_policy does not support serve\.order\.campaigns"):
        parse_spec(_short("gates: [{off_policy: snips, better_than: serving}]", "serve: {order: {campaigns: a.yaml}}"))


def test_a_cross_of_an_hour_that_no_entry_makes_is_of_the_time_of_the_schema() -> None:
    keys: dict[str, Any] = {"categorify": ["userId", "movieId"]}

    def operators(*features: dict[str, Any]) -> list[dict[str, Any]]:
        document = parse_spec(SPEC).document() | {"features": [keys, *features]}
        return [one.model_dump(exclude_defaults=True) for one in RecommenderSpec.model_validate(document).operators()][1:]

    of_hour, cross = {"calendar": {"of": "timestamp", "parts": ("hour",)}}, {"cross": ("movieId", "hour")}
    assert operators(cross, {"cross": ("userId", "hour")}) == [of_hour, cross, {"cross": ("userId", "hour")}]
    assert operators(of_hour, cross) == [of_hour, cross]
    assert operators({"categorify": ("hour",)}, cross) == [{"categorify": ("hour",)}, cross]
    assert operators({"cross": ("movieId", "userId")}) == [{"cross": ("movieId", "userId")}]


@pytest.mark.parametrize(
    "line",
    ["serve: {score: {}}", "split: {validation: 5%}"],
)
def test_what_is_planned_is_refused_and_never_ignored(line: str) -> None:
    key = line.split(":", maxsplit=1)[0]
    kept = "\n".join(part for part in SPEC.split("\n") if not part.startswith(f"{key}:"))
    if key in ("features", "gates"):
        kept = "\n".join(part for part in kept.split("\n") if not part.startswith("  - ") and not part.startswith("    "))
    with pytest.raises(Unsupported, match="not yet supported"):
        parse_spec(f"{kept}\n{line}\n")


def test_how_many_train_together_is_said_of_the_model_and_not_of_resources() -> None:
    with pytest.raises(Invalid, match=r"resources\.train\.processes: set model\.train\.processes: 2 instead"):
        parse_spec(f"{SPEC}\nresources: {{train: {{processes: 2}}}}\n")


def fields(schema: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for model in (schema, *schema["$defs"].values()):
        for name, field in model.get("properties", {}).items():
            yield f"{model.get('title')}.{name}", field


def test_every_field_is_documented() -> None:
    silent = [name for name, field in fields(RecommenderSpec.model_json_schema()) if not field.get("description")]
    assert silent == []


def retraining(text: str) -> RecommenderSpec:
    kept = "\n".join(part for part in SPEC.split("\n") if not part.startswith("retrain:"))
    return parse_spec(f"{kept}\nretrain: {text}")


@pytest.mark.requirement("C-03")
def test_everything_that_starts_a_retraining_can_be_said() -> None:
    spec = retraining(
        "{schedule: '0 3 * * MON-FRI', timezone: Europe/Berlin, schedule_mode: full, mode: warm, misfire: skip, misfire_grace: 10m, "
        "max_per_day: 3, on: [drift: {psi: 0.3}, kpi: {hit_rate: -10%}, new_events: 1000000, new_data: {every: 24h}, "
        "alert: {names: [HitRateLow], mode: full}]}"
    )
    plan = retrain_plan(spec)
    assert plan.schedule is not None
    assert (plan.schedule.key, plan.schedule.mode, plan.schedule.misfire) == ("0 3 * * MON-FRI (Europe/Berlin)", "full", "skip")
    assert (plan.mode, plan.drift_mode, plan.kpi_mode, plan.alert_mode) == ("warm", "warm", "full", "full")
    assert (plan.new_events, plan.new_data, plan.alerts, plan.max_per_day) == (1_000_000, timedelta(days=1), {"HitRateLow"}, 3)


@pytest.mark.requirement("G-13", "C-03")
def test_a_rate_may_fall_or_be_below_a_limit(subtests: Any) -> None:
    for said, thresholds in (
        ("{}", {"hit_rate": 0.1}),
        ("{hit_rate: -20%}", {"hit_rate": 0.2}),
        ("{hit_rate: {min: 0.05}}", {"hit_rate_min": 0.0}),
        ("{hit_rate: {min: 5%, fall: -15%}}", {"hit_rate": 0.15, "hit_rate_min": 0.0}),
        ("{conversion: -10%}", {"conversion": 0.1}),
        ("{hit_rate: -10%, conversion: {min: 2%}}", {"hit_rate": 0.1, "conversion_min": 0.0}),
    ):
        with subtests.test(said=said):
            spec = retraining(f"{{on: [kpi: {said}]}}")
            assert retrain_plan(spec).kpi == pytest.approx(thresholds)
            assert RecommenderSpec.model_validate(spec.document()) == spec
    for said, problem in (
        ("{hit_rate: {}}", "set a fall such as -10%, or a limit such as {min: 0.05}"),
        ("{hit_rate: 10%}", "less than 0"),
        ("{conversion: {min: 1.5}}", "less than 1"),
    ):
        with subtests.test(said=said), pytest.raises((Invalid, ValueError), match=re.escape(problem)):
            retraining(f"{{on: [kpi: {said}]}}")


@pytest.mark.requirement("G-13", "C-03")
def test_drift_retrains_warm_and_a_fallen_hit_rate_in_full_unless_it_is_said() -> None:
    plan = retrain_plan(retraining("{on: [drift: {}, kpi: {}]}"))
    assert (plan.drift_mode, plan.kpi_mode, plan.looks, plan.give_up_after) == ("warm", "full", 3, 3)
    assert plan.drift == {"psi": 0.2, "new": 0.05, "nulls": 0.05}
    said = retrain_plan(retraining("{on: [drift: {psi: null, scores: 0.3, looks: 2, mode: full}], give_up_after: 5, follow_up: [12h, 2d]}"))
    assert said.follow_up == (timedelta(hours=12), timedelta(days=2))
    assert (said.drift, said.looks, said.drift_mode, said.give_up_after) == ({"new": 0.05, "nulls": 0.05, "scores": 0.3}, 2, "full", 5)


def test_the_short_and_the_long_form_of_new_events_are_the_same() -> None:
    assert retraining("{on: [new_events: 1000]}") == retraining("{on: [new_events: {count: 1000}]}")
    assert retrain_plan(retraining("{on: [new_events: {count: 9, mode: warm}]}")).new_events_mode == "warm"


def test_a_scheduled_run_trains_as_all_do_unless_it_is_said() -> None:
    found = retrain_plan(retraining("{schedule: '@daily', mode: warm}")).schedule
    assert found is not None
    assert (found.mode, found.misfire, found.zone, found.allowed) == ("warm", "run_once", "UTC", None)


INVALID_TRIGGERS = [
    ("{schedule: '0 25 * * *'}", "retrain.schedule: hour: expected *, or values, rising ranges and their steps, of 0-23, got '25'"),
    ("{schedule: '0 0 30 2 *'}", "is never due"),
    ("{schedule: '0 3 * * *', timezone: Berlin}", "retrain.timezone: expected a time zone such as UTC or Europe/Berlin, got 'Berlin'"),
    ("{timezone: Europe/Berlin}", "retrain: timezone has no effect without a schedule"),
    ("{misfire: skip}", "misfire has no effect without a schedule"),
    ("{schedule: '@daily', misfire: often}", "retrain.misfire: expected 'run_once' or 'skip', got 'often'"),
    ("{max_per_day: 0}", "retrain.max_per_day: expected at least 1, got 0"),
    ("{on: [new_events: 0]}", "new_events.count: expected at least 1, got 0"),
    ("{on: [new_events: true]}", "new_events"),
    ("{on: [new_data: {}]}", "new_data.every: field required"),
    ("{on: [alert: {names: []}]}", "alert.names"),
    ("{on: [drift: {psi: 0}]}", "drift.psi: expected more than 0, got 0"),
    ("{on: [drift: {new: 150%}]}", "drift.new: expected at most 1"),
    ("{on: [drift: {scores: 2}]}", "drift.scores: expected at most 1, got 2"),
    ("{on: [drift: {looks: 0}]}", "drift.looks: expected at least 1, got 0"),
    ("{on: [drift: {min_events: 10}]}", "drift.min_events: expected at least 100, got 10"),
    ("{on: [drift: {ks: 0.1}]}", "drift: unknown field 'ks'"),
    (
        "{on: [drift: {psi: null, new: null, nulls: null}]}",
        "drift: all detectors are off; set a threshold for one of psi, new, nulls, scores",
    ),
    ("{on: [kpi: {window: 0s}]}", "kpi.window: expected a duration above 0"),
    ("{follow_up: [2d, 12h]}", "retrain: follow_up: the times count from the promotion and must increase, such as [12h, 2d]"),
    ("{give_up_after: 0}", "retrain.give_up_after: expected at least 1, got 0"),
    ("{on: [new_event: 5]}", "unknown trigger 'new_event': did you mean 'new_events'"),
]


def test_a_wrong_trigger_is_named(subtests: pytest.Subtests) -> None:
    for text, said in INVALID_TRIGGERS:
        with subtests.test(text=text), pytest.raises(Invalid, match=re.escape(said)):
            retraining(text)


def test_what_a_table_must_keep_to_is_said_in_the_words_of_interactions_and_is_no_part_of_a_spec_without_it() -> None:
    spec = parse_spec(SPEC)
    assert "validate" not in spec.document()["data"]["items"] and "unknown_items" not in spec.document()["data"]["validate"]
    said = "key: movieId, validate: {range: {year: [1880, null]}, bad_rows: {stop: 0.01%}, gone: {stop: 30%}}"
    found = parse_spec(SPEC.replace("key: movieId", said)).data.items.validate_
    assert found.range == {"year": (1880, None)} and found.columns() == ("year",)
    assert (found.bad_rows.warn, found.bad_rows.stop) == (0.0001, 0.0001), "who lowers stop alone lowers warn with it"
    assert (found.gone.warn, found.gone.stop) == (0.2, 0.3) and found.drift.stop is None
    with pytest.raises(Invalid, match=r"data\.items\.validate: unknown field 'rang': did you mean 'range'"):
        parse_spec(SPEC.replace("key: movieId", "key: movieId, validate: {rang: {}}"))
