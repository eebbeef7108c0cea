"""The recommender spec: the versioned YAML or JSON document that a user writes.

All fields except `name`, `data` and `schema` have working defaults. A field exists only if code uses it; planned fields are rejected as not
yet supported.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from datetime import timedelta
from difflib import get_close_matches
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator
from pydantic.json_schema import DEFAULT_REF_TEMPLATE, GenerateJsonSchema

from shared.contracts.archive import EventTable
from shared.contracts.data import Data, Table
from shared.contracts.entries import written
from shared.contracts.evaluation import Evaluate
from shared.contracts.events import PAGE
from shared.contracts.features import (
    TIME_OPERATORS,
    Any_,
    Categorify,
    MultiHot,
    Operator,
    Sequence,
    TargetEncode,
    Vector,
    mentioned,
    operator_kind,
    with_calendar,
)
from shared.contracts.feedback import Feedback, kinds_with_listed
from shared.contracts.gates import ForgottenGate, Gate, MetricGate, OffPolicyGate, ParityGate
from shared.contracts.keeping import Keep
from shared.contracts.models import Model
from shared.contracts.monitoring import Monitor
from shared.contracts.ordering import Order
from shared.contracts.quantities import ListedValues, PositiveRule, write_duration
from shared.contracts.resources import Resources
from shared.contracts.retraining import Retrain, Warm
from shared.contracts.rollouts import Rollout
from shared.contracts.schema import Schema
from shared.contracts.serving import Serve
from shared.contracts.sources import EncoderFile, ImagesFolder, Place
from shared.contracts.split import Split
from shared.contracts.strict import Strict, one_line, read
from shared.contracts.text import unkeepable
from shared.contracts.yaml12 import MAX_NODES, load
from shared.domain.errors import Invalid
from shared.domain.expression_kinds import check_kinds
from shared.domain.metric import PLAIN
from shared.domain.naming import NAME

API_VERSION: Literal["eyas/v1"] = "eyas/v1"

MAX_SPEC = 64 * 1024
"""Maximum bytes of a spec's text: YAML parsing is slow, and specs that people write are shorter."""


class _AsWritten(GenerateJsonSchema):
    """Writes defaults as a spec does, not in ISO 8601."""

    def encode_default(self, dft: Any) -> Any:
        return write_duration(dft) if isinstance(dft, timedelta) else super().encode_default(dft)


class RecommenderSpec(Strict):
    api_version: Literal["eyas/v1"] = Field(API_VERSION, alias="apiVersion", description="Version of this format.")
    name: Annotated[
        str,
        written(NAME.pattern, "lower-case letters, digits and dashes, at most 40, beginning with a letter"),
        Field(json_schema_extra={"pattern": f"^{NAME.pattern}$"}, description="Name: lower-case letters, digits and dashes; at most 40."),
    ]
    data: Data = Field(description="Sources of the data.")
    schema_: Schema = Field(alias="schema", description="Meaning of the columns.")
    features: tuple[Operator, ...] = Field((), description="Features; by default `categorify` of the user and the item.")
    split: Split = Field(Split(), description="Holdout for the evaluation.")
    model: Model = Field(Model(), description="Model and training.")
    evaluate: Evaluate = Field(Evaluate(), description="Size of the evaluation before a version is registered.")
    gates: tuple[Gate, ...] = Field(
        (MetricGate(metric="hr@10", better_than="popularity"), ParityGate(parity=1e-4)),
        description="Conditions that a version must meet before it is registered.",
    )
    feedback: Feedback = Field(Feedback(), description="Kinds of events, and which are positives.")
    serve: Serve = Field(Serve(), description="Settings of the answers.")
    monitor: Monitor = Field(Monitor(), description="Slices with KPIs of their own.")
    rollout: Rollout = Field(Rollout(), description="Rollout of a new version.")
    retrain: Retrain = Field(Retrain(), description="Triggers and modes of retraining.")
    keep: Keep = Field(Keep(), description="Time for which events stay in the database.")
    resources: Resources = Field(Resources(), description="Resources of the stages.")

    @model_validator(mode="before")
    @classmethod
    def _fill_defaults(cls, value: Any) -> Any:
        """Fills the defaults that depend on the schema: the split without times, and kinds of events that a listed label makes positive."""
        schema = value.get("schema") if isinstance(value, dict) else None
        if not isinstance(schema, dict):
            return value
        filled = dict(value)
        split, feedback, label = filled.get("split", {}), filled.get("feedback", {}), schema.get("label")
        if schema.get("time") is None and isinstance(split, dict) and "by" not in split:
            filled["split"] = {**split, "by": "pairs"}
        positive = label.get("positive") if isinstance(label, dict) else None
        if isinstance(positive, list | tuple | dict) and isinstance(feedback, dict):
            kinds = feedback.get("kinds", {})
            if isinstance(kinds, dict):
                filled["feedback"] = {**feedback, "kinds": kinds_with_listed(kinds, positive)}
        return filled

    @model_validator(mode="after")
    def _check_columns(self) -> RecommenderSpec:
        coded = [c for op in self.operators() for c in (op.categorify if isinstance(op, Categorify) else ())]
        named = coded + [op.multi_hot for op in self.operators() if isinstance(op, MultiHot)]
        doubled = sorted(column for column, count in Counter(named).items() if count > 1)
        if doubled:
            raise ValueError(f"features: column '{doubled[0]}' is produced twice")
        for need in (self.schema_.user, self.schema_.item):
            if need not in coded:
                near = get_close_matches(need, coded, n=1, cutoff=0.6)
                hint = f"; is the column '{near[0]}' meant?" if near else ""
                raise ValueError(f"features: the model needs categorify of '{need}'{hint}")
        label = self.schema_.label.column
        if any(label in mentioned(op) for op in self.operators() if not isinstance(op, TargetEncode)):
            raise ValueError(f"features: '{label}' is the label, which is unknown when a request is scored; leave it out")
        return self

    @model_validator(mode="after")
    def _check_weights(self) -> RecommenderSpec:
        if self.weighted and not self.model.params.takes_weights:
            raise ValueError(
                f"schema.label.positive: '{self.model.family}' cannot weight positives; list the values without weights, or choose mlp, "
                "dlrm, wide_deep, deepfm, dcn, two_tower, or mf with loss: als"
            )
        return self

    @model_validator(mode="after")
    def _check_time(self) -> RecommenderSpec:
        """Without a time column, nothing may depend on the order of the interactions."""
        if self.schema_.time is not None:
            return self
        needs = {
            f"split.by: {self.split.by}": self.split.by in ("time", "leave_last_out"),
            "data.interactions.since": self.data.interactions.since is not None,
            f"data.interactions.duplicates: {self.data.interactions.duplicates}": self.data.interactions.duplicates != "all",
            f"model.family: {self.model.family}": self.model.family == "session",
        }
        needs |= {f"features: {operator_kind(operator)}": operator_kind(operator) in TIME_OPERATORS for operator in self.operators()}
        needing = next((field for field, is_set in needs.items() if is_set), None)
        if needing is not None:
            raise ValueError(f"{needing} needs the column of the time; set schema.time, or leave it out")
        return self

    @model_validator(mode="after")
    def _check_pages(self) -> RecommenderSpec:
        if self.schema_.page is not None and PAGE in self.feedback.kinds:
            raise ValueError(f"feedback.kinds: '{PAGE}' is reserved for page views where schema.page is set; choose another name")
        if not any(isinstance(op, Sequence) and op.sequence.pages for op in self.operators()):
            return self
        if self.schema_.page is None:
            raise ValueError("features: sequence: pages needs schema.page, the column of pages")
        item = self.schema_.item
        if any(isinstance(op, Categorify) and item in op.categorify and op.values is not None for op in self.operators()):
            raise ValueError(f"features: sequence: pages and listed values of '{item}' exclude each other; leave one out")
        return self

    @model_validator(mode="after")
    def _check_encoded(self) -> RecommenderSpec:
        for op in self.operators():
            if isinstance(op, Vector) and op.vector.encode and op.vector.of == self.schema_.user and self.data.users is None:
                raise ValueError(f"features: vector '{op.vector.output}': encode needs a table of users; set data.users")
        return self

    @model_validator(mode="after")
    def _check_slices(self) -> RecommenderSpec:
        """A context name must have the same kind in filters and in slices."""
        try:
            check_kinds((*self.serve.expressions(), *self.monitor.expressions()), self.serve.attributes, self.serve.context)
        except Invalid as error:
            raise ValueError(f"monitor.slices: {error}") from None
        return self

    @model_validator(mode="after")
    def _check_goal(self) -> RecommenderSpec:
        compared = [gate for gate in self.gates if isinstance(gate, MetricGate) and gate.better_than == "popularity"]
        if self.model.family == "popularity" and compared:
            metric = compared[0].metric
            raise ValueError(
                "gates: the family 'popularity' cannot be better than popularity; set other gates, such as "
                f"[{{metric: {metric}, not_worse_than: serving, by: 5%}}, {{parity: 1e-4}}]"
            )
        return self

    @model_validator(mode="after")
    def _check_baseline(self) -> RecommenderSpec:
        rivals = {rival for gate in self.gates if isinstance(gate, MetricGate) for rival in (gate.better_than, gate.not_worse_than)}
        if "baseline" in rivals and self.model.baseline is None:
            raise ValueError("gates: no baseline to compare with; set model.baseline, such as itemknn")
        compared = [gate for gate in self.gates if isinstance(gate, MetricGate) and gate.metric.startswith("recall@")]
        if any("baseline" in (gate.better_than, gate.not_worse_than) for gate in compared):
            raise ValueError(f"gates: '{compared[0].metric}' is not measured for the baseline, which has no retrieval")
        return self

    @model_validator(mode="after")
    def _check_recall(self) -> RecommenderSpec:
        metrics = sorted({gate.metric for gate in self.gates if isinstance(gate, MetricGate) and gate.metric.startswith("recall@")})
        measured = f"recall@{self.serve.retrieve.candidates}" if self.serve.retrieve else None
        other = [metric for metric in metrics if metric != measured]
        if other:
            hint = f"serve.retrieve gives {measured}" if measured else "set serve.retrieve"
            raise ValueError(f"gates: '{other[0]}' is not measured; {hint}")
        return self

    @property
    def ranks_catalogue(self) -> bool:
        """Whether the model must rank a catalogue: always, unless gates measure the scores of labelled rows and no ranking."""
        metrics = {gate.named.kind for gate in self.gates if isinstance(gate, MetricGate)}
        return not metrics or not metrics <= set(PLAIN) or any(isinstance(gate, OffPolicyGate | ForgottenGate) for gate in self.gates)

    @model_validator(mode="after")
    def _check_off_policy(self) -> RecommenderSpec:
        if not any(isinstance(gate, OffPolicyGate) for gate in self.gates):
            return self
        order = self.serve.order
        if not order.explore.rate:
            raise ValueError("gates: off_policy needs explored answers; set serve.order.explore.rate above 0")
        campaigns = bool(order.campaigns) or order.unread is not None
        moved = {"rules": bool(order.rules), "campaigns": campaigns, "diversity": bool(order.diversity)}
        for name in (name for name, is_there in moved.items() if is_there):
            raise ValueError(f"gates: off_policy does not support serve.order.{name} yet; leave one of both out")
        if self.serve.expressions():
            raise ValueError("gates: off_policy does not support expressions in serve.filter yet; leave one of both out")
        return self

    @model_validator(mode="after")
    def _check_warm(self) -> RecommenderSpec:
        """Settings of warm runs must have an effect on the family."""
        params, warm, usual = self.model.params, self.retrain.warm, Warm()
        if not params.keeps_rows and warm.new_rows != usual.new_rows:
            raise ValueError(f"retrain.warm: 'new_rows' has no effect: '{self.model.family}' keeps no vectors by code; leave it out")
        if not params.replays and warm.replay != usual.replay:
            raise ValueError(
                f"retrain.warm: 'replay' has no effect: a warm run of '{self.model.family}' reads all earlier rows anyway; leave it out"
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
        return with_calendar(self.features or (Categorify(categorify=(self.schema_.user, self.schema_.item)),), self.schema_.time_column)

    def items_table(self) -> Table:
        """Returns the items table; without one, the interactions as the table of their items."""
        if self.data.items is not None:
            return self.data.items
        interactions = self.data.interactions
        return Table.model_validate(
            {"uri": interactions.uri, "query": interactions.query, "from": interactions.database, "key": self.schema_.item}
        )

    def horizon(self, table: EventTable) -> timedelta:
        """Returns how long the database keeps events: as `keep` says, but not shorter than a rollout, whose analysis reads them."""
        return max(self.keep.of(table), self.rollout.longest())

    def positive(self) -> PositiveRule:
        return self.schema_.label.positive

    @property
    def weighted(self) -> bool:
        """Whether positives have weights in training."""
        rule = self.schema_.label.positive
        return isinstance(rule, ListedValues) and rule.weights is not None

    def document(self) -> dict[str, Any]:
        """Returns the spec as plain JSON, for storage, comparison and stages. Without `keep` if that is the default, so that releases of
        before `keep` can read it."""
        return self.model_dump(mode="json", by_alias=True, exclude={"keep"} if self.keep == Keep() else None)

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
        raise Invalid(one_line(f"{source}: cannot be read: {error}")) from None
    if not same:
        raise Invalid(f"{source}: a number or duration has too many digits to be stored exactly; write fewer")
    return spec
