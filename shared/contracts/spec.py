"""The recommender spec: the versioned YAML or JSON document that a user writes.

All fields except `name`, `data` and `schema` have working defaults. A field exists only if code uses it; planned fields are rejected as not
yet supported.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from datetime import timedelta
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, PlainSerializer, WithJsonSchema, model_validator
from pydantic.json_schema import DEFAULT_REF_TEMPLATE, GenerateJsonSchema

from shared.contracts.columns import Column
from shared.contracts.entries import written
from shared.contracts.evaluation import Evaluate
from shared.contracts.events import PAGE
from shared.contracts.features import Any_, Categorify, MultiHot, Operator, Sequence, TargetEncode, Vector, mentioned, with_calendar
from shared.contracts.feedback import Feedback
from shared.contracts.gates import Gate, MetricGate, OffPolicyGate, ParityGate
from shared.contracts.models import Model
from shared.contracts.monitoring import Monitor
from shared.contracts.ordering import Order
from shared.contracts.quantities import Comparison, Cpu, Duration, Memory, Rule, parse_duration, parse_fraction, write_duration
from shared.contracts.retraining import Retrain, Warm
from shared.contracts.rollouts import Rollout
from shared.contracts.serving import Serve
from shared.contracts.sources import EncoderFile, ImagesFolder, Place
from shared.contracts.strict import Strict, one_line, read
from shared.contracts.text import unkeepable
from shared.contracts.validation import Validate, ValidateTable
from shared.contracts.yaml12 import MAX_NODES, load
from shared.domain.errors import Invalid
from shared.domain.expression_kinds import check_kinds
from shared.domain.naming import NAME
from shared.domain.run import RESOURCES

API_VERSION: Literal["eyas/v1"] = "eyas/v1"

MAX_SPEC = 64 * 1024
"""Maximum bytes of a spec's text: YAML parsing is slow, and specs that people write are shorter."""


class Fewest(Strict):
    user: int = Field(1, ge=1, description="Of each user, over items that are left.")
    item: int = Field(1, ge=1, description="Of each item, over users that are left.")


def _of_users(value: Any) -> Any:
    return {"user": value} if isinstance(value, int) else value


class Interactions(Place):
    also: Literal["events"] | None = Field(None, description="`events` joins the platform's own feedback with the file.")
    since: Duration | None = Field(None, description="Only interactions of this last stretch of the data are used; all when absent.")
    duplicates: Literal["all", "first", "last"] = Field(
        "all",
        description="Which of a user's interactions with one item are used. With `first` and `last` rows are sorted by user and time.",
    )
    min_interactions: Annotated[Fewest, BeforeValidator(_of_users)] = Field(
        Fewest(), description="Users, and items, with fewer are left out. A number alone is of users."
    )


class Table(Place):
    """Table with one row per key."""

    key: Column = Field(description="The column that joins the table with the interactions.")
    validate_: ValidateTable = Field(
        ValidateTable(),
        alias="validate",
        exclude_if=lambda wish: wish == ValidateTable(),
        description="What its rows must keep to before they are used.",
    )


class Data(Strict):
    interactions: Interactions = Field(description="Who did what with which item, and when.")
    items: Table = Field(description="What is known of each item: the catalogue.")
    users: Table | None = Field(None, description="What is known of each user. Users that it lacks stay: nothing is known of them.")
    validate_: Validate = Field(Validate(), alias="validate", description="What interactions must keep to before anything is learned.")

    def places(self) -> dict[str, Place]:
        """Returns all data sources, by field."""
        named: dict[str, Place | None] = {"interactions": self.interactions, "items": self.items, "users": self.users}
        return {name: place for name, place in named.items() if place is not None}


class Label(Strict):
    column: Column = Field(description="The column that says how an interaction went.")
    positive: Comparison = Field(description="Which values count as liked, such as '>= 4'.")


class Schema(Strict):
    user: Column = Field(description="The column of the user's key (an integer).")
    item: Column = Field(description="The column of the item's key (an integer).")
    time: Column = Field(description="Seconds since 1970, a timestamp, or ISO 8601 text; without a zone it means UTC.")
    label: Label = Field(description="What counts as liked.")
    page: Column | None = Field(
        None,
        exclude_if=lambda column: column is None,
        description="A column of text or whole numbers. A row with a page and no item is a view of that page: it isn't trained on, counted "
        "or recommended, and needs no label; a `sequence` with `pages` shows it.",
    )


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

    by: Literal["time", "leave_last_out", "random"] = Field(
        "time",
        description="The holdout is the newest part, as it will be in production (`time`); each user's newest interaction "
        "(`leave_last_out`); or everything of a share of the users, by a hash of their keys (`random`).",
    )
    test: Annotated[
        timedelta | float, BeforeValidator(_share), PlainSerializer(_write_share), WithJsonSchema({"type": ["number", "string"]})
    ] = Field(
        0.2,
        description="How much is held out: a share such as 20%, or, by time, a duration such as 7d. Without effect on `leave_last_out`.",
    )

    refit: bool = Field(
        True,
        description="Whether the version that is exported is fitted anew on all rows, the holdout among them, once the gates have passed "
        "the candidate. Its offline figures are those of the candidate.",
    )

    @model_validator(mode="after")
    def _share_of_users(self) -> Split:
        if self.by == "random" and isinstance(self.test, timedelta):
            raise ValueError("test: a random split holds out a share of the users such as 20%, not a duration")
        return self


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
        description="Whole GPUs (`nvidia.com/gpu`) of its Job, which waits for them; the operator's default if not given. Refused where "
        "the stage cannot use one (docs/gpus.md). On this machine a stage uses the GPUs that are there.",
    )
    gpu_memory: Memory | None = Field(
        None,
        description="What TensorFlow takes of each GPU's memory at most, such as 8Gi, here and in a Job: the rest is free for others. If "
        "not given, what `EYAS_GPU_MEMORY` of its surroundings says, else all of it. Without a GPU it has no effect.",
    )


def _processes(value: int) -> int:
    if value > 1:
        raise ValueError(f"how many train one model together is model.train.processes: say {value} there; each has these resources")
    return value


class EtlResources(StageResources):
    engine: Literal["polars", "nvtabular"] = Field(
        "polars",
        description="What computes the features: the same state and the same features by either. `nvtabular`: on Dask, on a CPU or on "
        "GPUs; it needs an environment, or an image, of its own.",
    )


class TrainResources(StageResources):
    memory: Memory | None = Field(
        None,
        description="Memory of its Job: a stage that needs more ends as out of memory; the operator's default if not given. A quarter of "
        "it, 512 MiB at most, is for batches that are read ahead and shuffled, on this machine too.",
    )
    processes: Annotated[int, AfterValidator(_processes)] = Field(
        1,
        ge=1,
        le=256,
        description="1, and nothing else: how many train together is `model.train.processes`; each Job's pod has these resources.",
    )


class Resources(Strict):
    etl: EtlResources = Field(EtlResources(), description="Reading, validating, features.")
    train: TrainResources = Field(TrainResources(), description="The model and its baseline; the refit of the model, too.")
    evaluate: StageResources = Field(StageResources(), description="Metrics on the holdout.")
    export: StageResources = Field(StageResources(), description="The served unit.")
    verify: StageResources = Field(StageResources(), description="Parity and latency on a disposable server.")

    def of(self, stage: str) -> StageResources:
        resources: StageResources = getattr(self, RESOURCES.get(stage, stage))
        return resources


class _AsWritten(GenerateJsonSchema):
    """Writes defaults as a spec does, not in ISO 8601."""

    def encode_default(self, dft: Any) -> Any:
        return write_duration(dft) if isinstance(dft, timedelta) else super().encode_default(dft)


class RecommenderSpec(Strict):
    api_version: Literal["eyas/v1"] = Field(API_VERSION, alias="apiVersion", description="Of this format.")
    name: Annotated[
        str,
        written(NAME.pattern, "lower-case letters, digits and dashes, at most 40, beginning with a letter"),
        Field(json_schema_extra={"pattern": f"^{NAME.pattern}$"}, description="Lower-case letters, digits and dashes; at most 40."),
    ]
    data: Data = Field(description="Where the data is.")
    schema_: Schema = Field(alias="schema", description="What the columns mean.")
    features: tuple[Operator, ...] = Field((), description="Defaults to categorify of the user and the item.")
    split: Split = Field(Split(), description="What is held out for evaluation.")
    model: Model = Field(Model(), description="What is trained.")
    evaluate: Evaluate = Field(Evaluate(), description="How many users it is judged on before it is registered.")
    gates: tuple[Gate, ...] = Field(
        (MetricGate(metric="hr@10", better_than="popularity"), ParityGate(parity=1e-4)),
        description="What a version must prove before it is registered.",
    )
    feedback: Feedback = Field(Feedback(), description="What users can do, and what it says.")
    serve: Serve = Field(Serve(), description="How it answers.")
    monitor: Monitor = Field(Monitor(), description="What is looked at apart.")
    rollout: Rollout = Field(Rollout(), description="How a version reaches the users.")
    retrain: Retrain = Field(Retrain(), description="When a new version is trained.")
    resources: Resources = Field(Resources(), description="What stages may use.")

    @model_validator(mode="after")
    def _columns_agree(self) -> RecommenderSpec:
        coded = [c for op in self.operators() for c in (op.categorify if isinstance(op, Categorify) else ())]
        named = coded + [op.multi_hot for op in self.operators() if isinstance(op, MultiHot)]
        doubled = sorted(column for column, count in Counter(named).items() if count > 1)
        if doubled:
            raise ValueError(f"features: column '{doubled[0]}' is produced twice")
        for need in (self.schema_.user, self.schema_.item):
            if need not in coded:
                raise ValueError(f"features: the model needs 'categorify' of '{need}'")
        label = self.schema_.label.column
        if any(label in mentioned(op) for op in self.operators() if not isinstance(op, TargetEncode)):
            raise ValueError(f"features: '{label}' is what is to be foretold: it isn't known when it would be needed")
        if len({self.schema_.user, self.schema_.item, self.schema_.time, label}) < 4:
            raise ValueError("schema: user, item, time and label must be four different columns")
        if self.schema_.page in (self.schema_.user, self.schema_.item, self.schema_.time, label):
            raise ValueError(f"schema: page can't be '{self.schema_.page}', which is another of its columns")
        return self

    @model_validator(mode="after")
    def _pages_are_known(self) -> RecommenderSpec:
        if self.schema_.page is not None and PAGE in self.feedback.kinds:
            raise ValueError(f"feedback.kinds: '{PAGE}' is a view of a page where schema.page is named: call your kind something else")
        if not any(isinstance(op, Sequence) and op.sequence.pages for op in self.operators()):
            return self
        if self.schema_.page is None:
            raise ValueError("features: sequence: pages: say which column of the interactions has them: schema.page")
        item = self.schema_.item
        if any(isinstance(op, Categorify) and item in op.categorify and op.values is not None for op in self.operators()):
            raise ValueError(f"features: sequence: pages have no codes beside the listed values of '{item}': leave one of both out")
        return self

    @model_validator(mode="after")
    def _what_is_encoded_is_there(self) -> RecommenderSpec:
        for op in self.operators():
            if isinstance(op, Vector) and op.vector.encode and op.vector.of == self.schema_.user and self.data.users is None:
                raise ValueError(f"features: vector '{op.vector.output}': encode: there is no table of users: say data.users")
        return self

    @model_validator(mode="after")
    def _slices_fit(self) -> RecommenderSpec:
        """A context name must have the same kind in filters and in slices."""
        try:
            check_kinds((*self.serve.expressions(), *self.monitor.expressions()), self.serve.attributes, self.serve.context)
        except Invalid as error:
            raise ValueError(f"monitor.slices: {error}") from None
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

    @model_validator(mode="after")
    def _baseline_is_named(self) -> RecommenderSpec:
        rivals = {rival for gate in self.gates if isinstance(gate, MetricGate) for rival in (gate.better_than, gate.not_worse_than)}
        if "baseline" in rivals and self.model.baseline is None:
            raise ValueError("gates: there is no baseline to compare with: say model.baseline, such as itemknn")
        compared = [gate for gate in self.gates if isinstance(gate, MetricGate) and gate.metric.startswith("recall@")]
        if any("baseline" in (gate.better_than, gate.not_worse_than) for gate in compared):
            raise ValueError(f"gates: '{compared[0].metric}' isn't measured of the baseline: it retrieves nothing")
        return self

    @model_validator(mode="after")
    def _recall_is_of_what_is_retrieved(self) -> RecommenderSpec:
        metrics = sorted({gate.metric for gate in self.gates if isinstance(gate, MetricGate) and gate.metric.startswith("recall@")})
        measured = f"recall@{self.serve.retrieve.candidates}" if self.serve.retrieve else None
        other = [metric for metric in metrics if metric != measured]
        if other:
            hint = f"serve.retrieve finds {measured}" if measured else "say serve.retrieve, which is what it is about"
            raise ValueError(f"gates: '{other[0]}' isn't measured: {hint}")
        return self

    @model_validator(mode="after")
    def _answers_can_be_foretold(self) -> RecommenderSpec:
        if not any(isinstance(gate, OffPolicyGate) for gate in self.gates):
            return self
        order = self.serve.order
        if not order.explore.rate:
            raise ValueError("gates: off_policy: serve.order.explore.rate is 0: of what is never shown nothing can be told")
        campaigns = bool(order.campaigns) or order.unread is not None
        moved = {"rules": bool(order.rules), "campaigns": campaigns, "diversity": bool(order.diversity)}
        for name in (name for name, is_there in moved.items() if is_there):
            raise ValueError(f"gates: off_policy: what serve.order.{name} makes of an answer can't be foretold yet: leave one of both out")
        if self.serve.expressions():
            raise ValueError("gates: off_policy: what an expression in serve.filter drops can't be foretold yet: leave one of both out")
        return self

    @model_validator(mode="after")
    def _goes_on_from_something(self) -> RecommenderSpec:
        """Settings of warm runs must have an effect on the family."""
        params, warm, usual = self.model.params, self.retrain.warm, Warm()
        if not params.keeps_rows and warm.new_rows != usual.new_rows:
            raise ValueError(f"retrain.warm: 'new_rows' has no effect: '{self.model.family}' keeps no vectors by code: leave it out")
        if not params.replays and warm.replay != usual.replay:
            raise ValueError(
                f"retrain.warm: 'replay' has no effect: a warm run of '{self.model.family}' doesn't learn from its rows alone: leave it out"
            )
        return self

    def places(self) -> dict[str, Place]:
        """Returns all data sources, by field."""
        places = {f"data.{name}" + (".uri" if place.uri is not None else ""): place for name, place in self.data.places().items()}
        for vector in (entry.vector for entry in self.operators() if isinstance(entry, Vector)):
            named = f"features: vector '{vector.output}'"
            if vector.encode is None:
                places[named] = Place(uri=vector.source)
                continue
            places[f"{named}: encode.encoder"] = EncoderFile(uri=vector.encode.encoder)
            if vector.encode.images is not None:
                places[f"{named}: encode.images"] = ImagesFolder(uri=vector.encode.images)
        return places

    def operators(self) -> tuple[Any_, ...]:
        return with_calendar(self.features or (Categorify(categorify=(self.schema_.user, self.schema_.item)),), self.schema_.time)

    def positive(self) -> Rule:
        return self.schema_.label.positive

    def document(self) -> dict[str, Any]:
        """Returns the spec as plain JSON, for storage, comparison and stages."""
        return self.model_dump(mode="json", by_alias=True)

    def with_campaigns(self, content: bytes) -> RecommenderSpec:
        """Returns the spec with the campaigns of the file that `serve.order.campaigns` names, and the file's digest."""
        uri = self.serve.order.unread
        assert uri is not None
        try:
            text = content.decode()
        except UnicodeDecodeError:
            raise Invalid(f"{uri}: the text is not UTF-8") from None
        campaigns = load(text, uri, MAX_NODES)
        if not isinstance(campaigns, list):
            raise Invalid(f"{uri}: expected a list of campaigns, such as - {{name: advent, from: ..., until: ..., rules: [{{pin: 815}}]}}")
        order = read(Order, {"campaigns": campaigns}, uri).model_dump(mode="json", by_alias=True)
        document = self.document()
        document["serve"]["order"] |= {
            "campaigns": order["campaigns"],
            "campaigns_from": {"uri": uri, "sha256": hashlib.sha256(content).hexdigest()},
        }
        return parse_spec(json.dumps(document), uri)

    @classmethod
    def json_schema(cls, place: str = DEFAULT_REF_TEMPLATE) -> dict[str, Any]:
        return cls.model_json_schema(ref_template=place, schema_generator=_AsWritten)


def parse_spec(text: str, source: str = "spec") -> RecommenderSpec:
    """Parses YAML or JSON. The returned spec is equal after a round trip through its own document."""
    size = len(text.encode(errors="surrogatepass"))
    if size > MAX_SPEC:
        raise Invalid(f"{source}: the text has {size} bytes; a spec has at most {MAX_SPEC}")
    value = load(text, source, MAX_NODES)
    if not isinstance(value, dict):
        raise Invalid(f"{source}: expected a mapping with name, data and schema")
    for place, problem in unkeepable(value):
        raise Invalid(one_line(f"{source}: {'.'.join(map(str, place)) or 'the spec'}: {problem}"))
    try:
        spec = read(RecommenderSpec, value, source)
        same = read(RecommenderSpec, spec.document(), source) == spec
    except (TypeError, ValueError, OverflowError, RecursionError) as error:  # from values that no validator expects
        raise Invalid(one_line(f"{source}: can't be read: {error}")) from None
    if not same:
        raise Invalid(f"{source}: can't be kept exactly: write its numbers and durations with fewer digits")
    return spec
