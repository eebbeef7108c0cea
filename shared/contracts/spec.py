"""The recommender spec: what a user writes (YAML or JSON), versioned, and the only way to say what is wanted.

Everything but `name`, `data` and `schema` has a default that works. A field is here because code honours it;
the rest of the design's names are refused as not yet supported.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BeforeValidator, Field, PlainSerializer, ValidationInfo, WithJsonSchema, model_validator
from pydantic.json_schema import DEFAULT_REF_TEMPLATE, GenerateJsonSchema

from shared.contracts.quantities import Comparison, Cpu, Duration, Fraction, Memory, Rule, parse_duration, parse_fraction, write_duration
from shared.contracts.rollouts import Rollout
from shared.contracts.strict import Strict, one_line, read, unknown_name
from shared.contracts.text import unkeepable
from shared.contracts.yaml12 import load
from shared.domain.cron import Cron, zone
from shared.domain.errors import Invalid

API_VERSION: Literal["eyas/v1"] = "eyas/v1"
NAME = re.compile(r"[a-z][a-z0-9-]{0,39}")
METRIC = re.compile(r"(?:hr|ndcg)@[1-9]\d{0,2}(?:/[1-9]\d{0,3})?|auc")

MAX_SPEC = 64 * 1024
"""The most bytes of a spec's text: YAML is slow to read, and no spec that a person writes is longer."""


def _written(pattern: str, wanted: str) -> Any:
    """Text of that pattern; who wrote something else is told what is wanted in words."""

    def check(value: str) -> str:
        if not re.fullmatch(pattern, value):
            raise ValueError(f"expected {wanted}, got {value!r}")
        return value

    return AfterValidator(check)


def _entry(what: str, kinds: Mapping[str, type[Strict]], planned: frozenset[str], example: str) -> Callable[[Any], Any]:
    """Reads an entry of a list by the one kind that it names."""

    def read_entry(value: Any) -> Any:
        if isinstance(value, Strict):
            return value
        if not isinstance(value, dict) or not value:
            raise ValueError(f"expected one {what} such as {example}")
        named = [name for name in value if name in kinds]
        if len(named) > 1:
            raise ValueError(f"one entry names one {what}; this one names {' and '.join(named)}")
        if not named:
            raise unknown_name(what, str(next(iter(value))), kinds, planned)
        return kinds[named[0]].model_validate(value)

    return read_entry


_COLUMN = r"[A-Za-z_][A-Za-z0-9_]{0,119}"
Column = Annotated[
    str,
    _written(_COLUMN, "a column's name: letters, digits and underscores, at most 120, not beginning with a digit"),
    Field(json_schema_extra={"pattern": f"^{_COLUMN}$"}),
]


class Interactions(Strict):
    planned = frozenset({"query"})

    uri: str = Field(description="Parquet or CSV, a path or glob, absolute or relative, under one of the operator's data roots.")
    also: Literal["events"] | None = Field(None, description="`events` joins the platform's own feedback with the file.")
    since: Duration | None = Field(None, description="Only interactions of this last stretch of the data are used; all when absent.")


class Table(Strict):
    uri: str = Field(description="Parquet or CSV with one row per key.")
    key: Column = Field(description="The column that joins the table with the interactions.")


class Data(Strict):
    planned = frozenset({"users", "validate"})

    interactions: Interactions = Field(description="Who did what with which item, and when.")
    items: Table = Field(description="What is known of each item: the catalogue.")


class Label(Strict):
    column: Column = Field(description="The column that says how an interaction went.")
    positive: Comparison = Field(description="Which values count as liked, such as '>= 4'.")


class Schema(Strict):
    user: Column = Field(description="The column of the user's key (an integer).")
    item: Column = Field(description="The column of the item's key (an integer).")
    time: Column = Field(description="Seconds since 1970, a timestamp, or ISO 8601 text; without a zone it means UTC.")
    label: Label = Field(description="What counts as liked.")


class Categorify(Strict):
    """Ids to codes: 0 is null or padding, 1 is out of vocabulary, 2 and up are known values, the most frequent first."""

    categorify: tuple[Column, ...] = Field(min_length=1, description="Columns of single values, each with a vocabulary of its own.")
    min_count: int = Field(1, ge=1, description="Values seen less often are out of vocabulary.")


class MultiHot(Strict):
    """A column with several values a row, as a list or delimited text, to codes."""

    multi_hot: Column = Field(description="A column of the items table.")
    separator: str | None = Field(None, min_length=1, max_length=1, description="Splits text; absent for a column of lists.")
    max_length: int = Field(16, ge=1, le=256, description="Further values of a row are dropped, in order.")
    min_count: int = Field(1, ge=1, description="Values seen less often are out of vocabulary.")


_OPERATORS: dict[str, type[Strict]] = {"categorify": Categorify, "multi_hot": MultiHot}
_PLANNED_OPERATORS = frozenset(
    {
        "cyclic",
        "target_encode",
        "count_encode",
        "lag",
        "cross",
        "vector",
        "normalise",
        "log",
        "clip",
        "fill",
        "bucketise",
        "sequence",
        "extract",
    }
)


Operator = Annotated[Categorify | MultiHot, BeforeValidator(_entry("operator", _OPERATORS, _PLANNED_OPERATORS, "{categorify: [userId]}"))]


def _share(value: Any) -> Any:
    try:
        share = parse_fraction(value)
    except ValueError:
        return parse_duration(value)
    if not 0 < share < 1:
        raise ValueError(f"expected a share between 0% and 100% or a duration, got {value!r}")
    return share


def _write_share(value: timedelta | float) -> float | str:
    return write_duration(value) if isinstance(value, timedelta) else value


class Split(Strict):
    planned = frozenset({"validation"})

    by: Literal["time"] = Field("time", description="The holdout is the newest part, as it will be in production.")
    test: Annotated[
        timedelta | float, BeforeValidator(_share), PlainSerializer(_write_share), WithJsonSchema({"type": ["number", "string"]})
    ] = Field(0.2, description="The newest stretch of the interactions is the holdout: a share such as 20%, or a duration such as 7d.")


class MlpParams(Strict):
    """The notebook's model: embeddings, hidden ReLU layers, a sigmoid."""

    layers: tuple[Annotated[int, Field(ge=1, le=8192)], ...] = Field(
        (128, 128, 128), min_length=1, max_length=8, description="Widths of the hidden layers."
    )
    width: int | None = Field(
        None, ge=1, le=1024, description="One embedding width for all columns; by rule of the cardinality when absent."
    )
    negatives: int = Field(4, ge=0, le=100, description="Sampled negatives for each positive, drawn anew each epoch.")

    def wants_both_labels(self, full: bool) -> bool:
        """Feedback is mostly positive by nature: sampled negatives stand against it. A file of one label is a mistake."""
        return full or self.negatives == 0


class PopularityParams(Strict):
    """Nothing can be chosen: a count has no parameters."""

    def wants_both_labels(self, full: bool) -> bool:
        """It counts positives."""
        return False


Params = MlpParams | PopularityParams


class Training(Strict):
    planned = frozenset({"mixed_precision", "compile", "early_stop"})

    epochs: int = Field(5, ge=1, le=1000, description="Passes over the training rows.")
    batch_size: int = Field(4096, ge=1, description="Rows of a step, sampled negatives among them.")
    optimizer: Literal["adam", "sgd"] = Field("adam", description="How the weights are updated.")
    learning_rate: float = Field(0.003, gt=0, le=10, description="Of the optimizer.")
    seed: int = Field(1, ge=0, description="Seeds weights, shuffling and negatives.")


def _params(value: Any, info: ValidationInfo) -> Any:
    """Read by the family that the spec names."""
    kind = Model.FAMILIES.get(str(info.data.get("family")))
    return value if kind is None or isinstance(value, kind) else kind.model_validate(value)


def _without_default(schema: dict[str, Any]) -> None:
    """Which family's it would be, the schema doesn't say: generators of clients stumble over it."""
    del schema["default"]


class Model(Strict):
    FAMILIES: ClassVar[Mapping[str, type[Params]]] = {"mlp": MlpParams, "popularity": PopularityParams}
    PLANNED: ClassVar[frozenset[str]] = frozenset({"itemknn", "ease", "mf", "neumf", "wide_deep", "dlrm", "two_tower", "session", "gbm"})

    family: str = Field(
        "mlp",
        description="`mlp`: embeddings, hidden layers, sigmoid. `popularity`: an item's share of positives, the same for every user: "
        "a safe first version. A popularity baseline is always trained beside it.",
    )
    framework: Literal["tensorflow"] = Field("tensorflow", description="What trains a family that is trained.")
    params: Annotated[Params, BeforeValidator(_params)] = Field(
        {},
        validate_default=True,
        description="The family's own parameters.",
        json_schema_extra=_without_default,
    )
    train: Training = Field(Training(), description="How it is trained.")

    @model_validator(mode="before")
    @classmethod
    def _known_family(cls, value: Any) -> Any:
        if isinstance(value, dict):
            family = value.get("family", "mlp")
            if isinstance(family, str) and family not in cls.FAMILIES:
                raise unknown_name("model family", family, cls.FAMILIES, cls.PLANNED)
            framework = value.get("framework", "tensorflow")
            if framework in ("torch", "jax"):
                raise unknown_name("framework", framework, ["tensorflow"], {"torch", "jax"})
        return value

    @model_validator(mode="after")
    def _says_nothing_in_vain(self) -> Model:
        if self.family == "popularity":
            idle = [name for name, value in Training() if name != "seed" and getattr(self.train, name) != value]
            if idle:
                raise ValueError(f"train: '{idle[0]}' has no effect: popularity counts and isn't trained: leave it out")
        return self


class MetricGate(Strict):
    planned = frozenset({"slice"})

    metric: Annotated[
        str,
        _written(METRIC.pattern, "a metric such as hr@10, ndcg@10, hr@10/99 or auc"),
        Field(
            json_schema_extra={"pattern": f"^(?:{METRIC.pattern})$"},
            description="`hr@10`, `ndcg@10` (full catalogue), `hr@10/99` (99 negatives), `auc`.",
        ),
    ]
    min: float | None = Field(None, ge=0, le=1, description="The metric must reach this value.")
    better_than: Literal["popularity", "serving"] | None = Field(None, description="It must exceed that model's, on the same holdout.")
    not_worse_than: Literal["popularity", "serving"] | None = Field(None, description="It must reach that model's, less the margin.")
    by: Fraction = Field(0.0, ge=0, description="The relative margin of the comparison.")

    @model_validator(mode="after")
    def _one_condition(self) -> MetricGate:
        if sum(x is not None for x in (self.min, self.better_than, self.not_worse_than)) != 1:
            raise ValueError("a gate has exactly one of min, better_than, not_worse_than")
        return self


class ParityGate(Strict):
    """The served unit must answer as the model did in training: the largest difference on real rows."""

    parity: float = Field(gt=0, le=0.1, description="Largest difference between the real server's scores and training's, on real rows.")


_BATCH: Any = Field(None, ge=1, le=100_000, description="Rows in a call; the whole catalogue when absent.")


class LatencyGate(Strict):
    latency_p99: Duration = Field(description="The 99th percentile of one call on the real server.")
    batch: int | None = _BATCH


class MedianGate(Strict):
    latency_p50: Duration = Field(description="The median of one call on the real server.")
    batch: int | None = _BATCH


class ThroughputGate(Strict):
    throughput: float = Field(gt=0, le=1e12, description="Rows a second on the real server, asked by one caller: at least so many.")
    batch: int | None = _BATCH


class MemoryGate(Strict):
    memory: Memory = Field(
        description="What the version adds to the real server's resident memory, its share of the backend's own included."
    )


ServingGate = LatencyGate | MedianGate | ThroughputGate
_GATES: dict[str, type[Strict]] = {
    "metric": MetricGate,
    "parity": ParityGate,
    "latency_p99": LatencyGate,
    "latency_p50": MedianGate,
    "throughput": ThroughputGate,
    "memory": MemoryGate,
}


Gate = Annotated[
    MetricGate | ParityGate | LatencyGate | MedianGate | ThroughputGate | MemoryGate,
    BeforeValidator(_entry("gate", _GATES, frozenset(), "{metric: hr@10, better_than: popularity}")),
]


class Serve(Strict):
    planned = frozenset({"retrieve", "order", "score"})

    seen: Literal["drop", "keep"] = Field(
        "drop", description="Whether items that the user has already liked here are dropped from answers."
    )
    instances: int = Field(
        1, ge=1, le=16, description="Of each version on each server: so many calls are computed at once, each with the model's memory."
    )
    warm_up: int = Field(
        0,
        ge=0,
        le=100_000,
        description="Rows (zeros, empty texts) of a call that a server makes of a version before it is ready; 0: none.",
    )


Mode = Literal["full", "warm"]
TriggerMode = Annotated[Mode | None, Field(description="How to retrain when this trigger fires; as `retrain.mode` says, when absent.")]


class DriftTrigger(Strict):
    psi: float = Field(
        0.2, gt=0, description="Population stability index between the positives of the serving version's first days and the newest ones."
    )
    min_events: int = Field(1000, ge=100, description="Positives on each side of the comparison.")
    mode: TriggerMode = None


class KpiTrigger(Strict):
    hit_rate: Annotated[Fraction, Field(lt=0, gt=-1)] = Field(-0.1, description="Relative fall below the serving version's first hit rate.")
    window: Duration = Field(timedelta(hours=1), description="How much of the newest time is compared.")
    min_answers: int = Field(500, ge=50, description="Answers on each side of the comparison.")
    mode: Mode = Field("full", description="How to retrain when this trigger fires.")


class NewEventsTrigger(Strict):
    count: int = Field(ge=1, le=1_000_000_000, description="Events that have come since the serving version's snapshot of them.")
    mode: TriggerMode = None


class NewDataTrigger(Strict):
    every: Duration = Field(description="So long after the serving version's snapshot, if any event has come since.")
    mode: TriggerMode = None


class AlertTrigger(Strict):
    names: tuple[Annotated[str, Field(min_length=1, max_length=200)], ...] = Field(
        min_length=1,
        max_length=100,
        description="Alerts (`alertname`) that start a retraining when their `recommender` label names this one.",
    )
    mode: TriggerMode = None


class OnDrift(Strict):
    drift: DriftTrigger = Field(description="Retrains when what users like has moved.")


class OnKpi(Strict):
    kpi: KpiTrigger = Field(description="Retrains when recommendations earn less.")


def _counted(value: Any) -> Any:
    return {"count": value} if isinstance(value, int) and not isinstance(value, bool) else value


class OnNewEvents(Strict):
    new_events: Annotated[NewEventsTrigger, BeforeValidator(_counted, json_schema_input_type=int | NewEventsTrigger)] = Field(
        description="Retrains when so many events have come, `1000000` or `{count: 1000000, mode: warm}`. A full run learns from them only "
        "where `data.interactions.also` is `events`, a warm one always.",
    )


class OnNewData(Strict):
    new_data: NewDataTrigger = Field(description="Retrains when so much time has passed and there is something new to learn from.")


class OnAlert(Strict):
    alert: AlertTrigger = Field(description="Retrains when Alertmanager says so (`POST /v1/alerts`).")


_TRIGGERS: dict[str, type[Strict]] = {
    "drift": OnDrift,
    "kpi": OnKpi,
    "new_events": OnNewEvents,
    "new_data": OnNewData,
    "alert": OnAlert,
}
Trigger = Annotated[
    OnDrift | OnKpi | OnNewEvents | OnNewData | OnAlert,
    BeforeValidator(_entry("trigger", _TRIGGERS, frozenset(), "{kpi: {hit_rate: -10%}}")),
]


def _schedule(value: str) -> str:
    return Cron.parse(value).text


Schedule = Annotated[
    str, AfterValidator(_schedule), Field(json_schema_extra={"examples": ["0 3 * * *", "*/30 8-18 * * MON-FRI", "@daily"]})
]
TimeZone = Annotated[str, AfterValidator(lambda name: zone(name).key), Field(json_schema_extra={"examples": ["UTC", "Europe/Berlin"]})]


class Retrain(Strict):
    on: tuple[Trigger, ...] = Field((), description="What starts a retraining; by hand it can always be started.")
    mode: Mode = Field(
        "full", description="`warm` starts from the serving version's weights and learns from the events since its snapshot."
    )
    cooldown: Duration = Field(timedelta(hours=6), description="After one retraining has ended, triggers wait this long.")
    schedule: Schedule | None = Field(
        None,
        description="Five cron fields, or `@daily` and the like. A scheduled run starts whether or not there is anything new: stages whose "
        "inputs are the same are cheap.",
    )
    timezone: TimeZone = Field("UTC", description="On whose wall clock the schedule is read, through changes to and from summer time.")
    schedule_mode: Mode | None = Field(
        None,
        description="How a scheduled run trains; as `mode` says, when absent. `full` beside `mode: warm` is the periodic full retraining.",
    )
    misfire: Literal["run_once", "skip"] = Field(
        "run_once",
        description="Of a due time that can't start its run (the platform was down, something is under way, a cooldown or the maximum "
        "holds it back): `run_once` starts one run, however many were missed, as soon as it can; `skip` waits for the next due time.",
    )
    misfire_grace: Duration | None = Field(
        None, description="A due time older than this is let go. Absent: `run_once` knows no limit, `skip` allows a minute."
    )
    max_per_day: int | None = Field(
        None, ge=1, le=100, description="Most retrainings in any 24 hours; those asked for by hand neither count nor wait."
    )

    @model_validator(mode="after")
    def _one_of_a_kind(self) -> Retrain:
        for name, kind in _TRIGGERS.items():
            if sum(isinstance(on, kind) for on in self.on) > 1:
                raise ValueError(f"on: '{name}' is given twice; write one trigger of each kind")
        if self.schedule is None:
            idle = {"timezone", "schedule_mode", "misfire", "misfire_grace"} & self._said()
            if idle:
                raise ValueError(f"{sorted(idle)[0]} says something about a schedule, and there is none: add schedule, such as '0 3 * * *'")
        return self

    def _said(self) -> set[str]:
        """The fields that differ from what they are when absent."""
        return {name for name, field in type(self).model_fields.items() if getattr(self, name) != field.default}


_LOCAL = "A stage on this machine takes what it needs: there it has no effect."


class StageResources(Strict):
    timeout: Duration = Field(timedelta(hours=6), description="A stage that runs longer is stopped and tried again.")
    cpu: Cpu | None = Field(None, description=f"Cores of its Job, such as 2 or 500m; the operator's default if not given. {_LOCAL}")
    memory: Memory | None = Field(
        None, description=f"Memory of its Job: a stage that needs more ends as out of memory; the operator's default if not given. {_LOCAL}"
    )
    gpu: int | None = Field(
        None,
        ge=0,
        le=64,
        description=f"Whole GPUs (`nvidia.com/gpu`) of its Job, which waits for them; the operator's default if not given. {_LOCAL}",
    )


def _engine(value: Any) -> Any:
    if value != "polars":
        raise unknown_name("engine", str(value), ["polars"], {"nvtabular"})
    return value


def _processes(value: int) -> int:
    if value > 1:
        raise unknown_name("number of processes", str(value), ["1"], {str(value)})
    return value


class EtlResources(StageResources):
    engine: Annotated[Literal["polars"], BeforeValidator(_engine)] = Field(
        "polars", description="What computes the features; chooses the image."
    )


class TrainResources(StageResources):
    processes: Annotated[int, AfterValidator(_processes)] = Field(
        1,
        ge=1,
        le=256,
        description="Processes that train together, each with these resources. No model family trains in more than one yet.",
    )


class Resources(Strict):
    etl: EtlResources = Field(EtlResources(), description="Reading, validating, features.")
    train: TrainResources = Field(TrainResources(), description="The model and its baseline.")
    evaluate: StageResources = Field(StageResources(), description="Metrics on the holdout.")
    export: StageResources = Field(StageResources(), description="The served unit.")
    verify: StageResources = Field(StageResources(), description="Parity and latency on a disposable server.")


class _AsWritten(GenerateJsonSchema):
    """Defaults as a spec writes them, not as ISO 8601 does."""

    def encode_default(self, dft: Any) -> Any:
        return write_duration(dft) if isinstance(dft, timedelta) else super().encode_default(dft)


class RecommenderSpec(Strict):
    api_version: Literal["eyas/v1"] = Field(API_VERSION, alias="apiVersion", description="Of this format.")
    name: Annotated[
        str,
        _written(NAME.pattern, "lower-case letters, digits and dashes, at most 40, beginning with a letter"),
        Field(json_schema_extra={"pattern": f"^{NAME.pattern}$"}, description="Lower-case letters, digits and dashes; at most 40."),
    ]
    data: Data = Field(description="Where the data is.")
    schema_: Schema = Field(alias="schema", description="What the columns mean.")
    features: tuple[Operator, ...] = Field((), description="Defaults to categorify of the user and the item.")
    split: Split = Field(Split(), description="What is held out for evaluation.")
    model: Model = Field(Model(), description="What is trained.")
    gates: tuple[Gate, ...] = Field(
        (MetricGate(metric="hr@10", better_than="popularity"), ParityGate(parity=1e-4)),
        description="What a version must prove before it is registered.",
    )
    serve: Serve = Field(Serve(), description="How it answers.")
    rollout: Rollout = Field(Rollout(), description="How a version reaches the users.")
    retrain: Retrain = Field(Retrain(), description="When a new version is trained.")
    resources: Resources = Field(Resources(), description="What stages may use.")

    @model_validator(mode="after")
    def _columns_agree(self) -> RecommenderSpec:
        named = [c for op in self.operators() for c in (op.categorify if isinstance(op, Categorify) else (op.multi_hot,))]
        doubled = sorted({c for c in named if named.count(c) > 1})
        if doubled:
            raise ValueError(f"features: column '{doubled[0]}' is produced twice")
        for need in (self.schema_.user, self.schema_.item):
            if need not in named:
                raise ValueError(f"features: the model needs 'categorify' of '{need}'")
        if len({self.schema_.user, self.schema_.item, self.schema_.time, self.schema_.label.column}) < 4:
            raise ValueError("schema: user, item, time and label must be four different columns")
        return self

    @model_validator(mode="after")
    def _can_be_better(self) -> RecommenderSpec:
        compared = [gate for gate in self.gates if isinstance(gate, MetricGate) and gate.better_than == "popularity"]
        if self.model.family == "popularity" and compared:
            metric = compared[0].metric
            raise ValueError(
                "gates: a model of the family 'popularity' can't be better than popularity, which it is: say other gates, such as "
                f"[{{metric: {metric}, not_worse_than: serving, by: 5%}}, {{parity: 1e-4}}]"
            )
        return self

    def operators(self) -> tuple[Categorify | MultiHot, ...]:
        return self.features or (Categorify(categorify=(self.schema_.user, self.schema_.item)),)

    def positive(self) -> Rule:
        return self.schema_.label.positive

    def document(self) -> dict[str, Any]:
        """The spec as plain JSON: what is stored, compared and handed to stages."""
        return self.model_dump(mode="json", by_alias=True)

    @classmethod
    def json_schema(cls, place: str = DEFAULT_REF_TEMPLATE) -> dict[str, Any]:
        return cls.model_json_schema(ref_template=place, schema_generator=_AsWritten)


def parse_spec(text: str, source: str = "spec") -> RecommenderSpec:
    """Reads YAML or JSON. What is given back is read back from its own document as the same spec."""
    size = len(text.encode(errors="surrogatepass"))
    if size > MAX_SPEC:
        raise Invalid(f"{source}: the text has {size} bytes; a spec has at most {MAX_SPEC}")
    value = load(text, source)
    if not isinstance(value, dict):
        raise Invalid(f"{source}: expected a mapping with name, data and schema")
    for place, said in unkeepable(value):
        raise Invalid(one_line(f"{source}: {'.'.join(map(str, place)) or 'the spec'}: {said}"))
    try:
        spec = read(RecommenderSpec, value, source)
        same = read(RecommenderSpec, spec.document(), source) == spec
    except (TypeError, ValueError, OverflowError, RecursionError) as error:  # of values that no validator of ours expects
        raise Invalid(one_line(f"{source}: can't be read: {error}")) from None
    if not same:
        raise Invalid(f"{source}: can't be kept exactly: write its numbers and durations with fewer digits")
    return spec
