"""The spec's `retrain`: triggers, schedule and limits of retraining."""

from __future__ import annotations

from datetime import timedelta
from itertools import pairwise
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from shared.contracts.entries import entry
from shared.contracts.quantities import Duration, Fraction
from shared.contracts.strict import Strict
from shared.domain.cron import Cron, zone
from shared.domain.drift.detectors import DETECTORS
from shared.domain.drift.rates import limit_detector
from shared.domain.drift.seasons import Season
from shared.domain.sequential_test import Goal

RequestedMode = Literal["full", "warm", "auto"]
TriggerMode = Annotated[RequestedMode | None, Field(description="Mode of the run that this trigger starts; `retrain.mode` if absent.")]


class DriftTrigger(Strict):
    """Thresholds apply to the size without the part that chance explains; null turns a detector off."""

    psi: float | None = Field(
        0.2,
        gt=0,
        le=100,
        description="Population stability index of an item feature between the positives of the serving version's first days and the "
        "newest ones; null: not checked.",
    )
    new: Fraction | None = Field(
        0.05, gt=0, le=1, description="Increase of the share of positives on items that the serving version does not know."
    )
    nulls: Fraction | None = Field(0.05, gt=0, le=1, description="Increase of the share of positives on items with a null feature.")
    scores: float | None = Field(
        None, gt=0, le=1, description="Maximum distance between the former and the current distribution of scores; always measured."
    )
    min_events: int = Field(1000, ge=100, le=1_000_000, description="Positives, and scores shown, on each side of the comparison.")
    looks: int = Field(
        3, ge=1, le=100, description="Number of looks in a row above the threshold, four per window. As many without drift end it."
    )
    season: Season = Field(
        "none",
        description="Period of the reference, for positives that depend on the hour: the newest window is compared with the same hours of "
        "the version's first day (`day`) or first week (`week`), once it is complete; `auto`: the first day until a week has passed, then "
        "the first week. `none`: with the version's first window.",
    )
    mode: RequestedMode = Field("warm", description="Mode of the run that this trigger starts.")

    def thresholds(self) -> dict[str, float]:
        """Returns the thresholds of the detectors that may start a retraining, by name."""
        return {name: value for name in DETECTORS if (value := getattr(self, name)) is not None}

    @model_validator(mode="after")
    def _check_limits(self) -> DriftTrigger:
        if not self.thresholds():
            raise ValueError(f"drift: all detectors are off; set a threshold for one of {', '.join(DETECTORS)}")
        return self


class RateRule(Strict):
    """Conditions on a rate: a fall, or a limit."""

    fall: Annotated[Fraction, Field(lt=0, gt=-1)] | None = Field(None, description="Relative fall below the earlier rate, such as -10%.")
    min: Annotated[Fraction, Field(gt=0, lt=1)] | None = Field(
        None,
        description="Lower limit of the newest day's rate, independent of earlier rates; without a season, of the newest window's rate.",
    )

    @model_validator(mode="after")
    def _check_metric(self) -> RateRule:
        if self.fall is None and self.min is None:
            raise ValueError("set a fall such as -10%, or a limit such as {min: 0.05}")
        return self


def _a_fall(value: Any) -> Any:
    return {"fall": value} if isinstance(value, int | float | str) and not isinstance(value, bool) else value


FallOrRule = Annotated[RateRule, BeforeValidator(_a_fall, json_schema_input_type=Fraction | RateRule)]


class KpiTrigger(Strict):
    hit_rate: FallOrRule | None = Field(
        None,
        description="Rule for the hit rate: a fall such as `-10%`, a limit such as `{min: 0.05}`, or both. Without any rate: `hit_rate: "
        "-10%`.",
    )
    conversion: FallOrRule | None = Field(None, description="Rule for the share of users with at least one hit, in the same form.")
    window: Duration = Field(
        timedelta(hours=1), description="Length of a window, which has four looks; with a season at most one look per minute."
    )
    season: Season = Field(
        "auto",
        description="Reference of the comparison: the same hours of earlier days (`day`) or earlier weeks (`week`), so that a night or a "
        "weekend is not a fall, once one is complete; `auto`: days until there is a full week of answers, then weeks. `none`: all earlier "
        "answers of the serving version.",
    )
    min_answers: int = Field(500, ge=50, description="Minimum number of answers on each side of the comparison.")
    mode: RequestedMode = Field("full", description="Mode of the run that this trigger starts.")

    @model_validator(mode="after")
    def _check_rate(self) -> KpiTrigger:
        return self if self.hit_rate or self.conversion else self.model_copy(update={"hit_rate": RateRule(fall=-0.1)})

    def rates(self) -> dict[Goal, RateRule]:
        """Returns the rates with a rule."""
        return {name: rate for name, rate in (("hit_rate", self.hit_rate), ("conversion", self.conversion)) if rate is not None}  # type: ignore[misc]

    def thresholds(self) -> dict[str, float]:
        """Returns the size from which each detector's reading counts."""
        falls: dict[str, float] = {name: -rate.fall for name, rate in self.rates().items() if rate.fall is not None}
        return {**falls, **{limit_detector(name): 0.0 for name, rate in self.rates().items() if rate.min is not None}}


class NewEventsTrigger(Strict):
    count: int = Field(ge=1, le=1_000_000_000, description="Number of events since the serving version's snapshot.")
    mode: TriggerMode = None


class NewDataTrigger(Strict):
    every: Duration = Field(description="Time after the serving version's snapshot, if any event has arrived since.")
    mode: TriggerMode = None


class AlertTrigger(Strict):
    names: tuple[Annotated[str, Field(min_length=1, max_length=200)], ...] = Field(
        min_length=1,
        max_length=100,
        description="Alerts (`alertname`) that start a retraining if their `recommender` label names this recommender.",
    )
    mode: TriggerMode = None


class OnDrift(Strict):
    drift: DriftTrigger = Field(description="Retrains when the distribution of positives has changed.")


class OnKpi(Strict):
    kpi: KpiTrigger = Field(description="Retrains when the hit rate or the conversion falls.")


def _counted(value: Any) -> Any:
    return {"count": value} if isinstance(value, int) and not isinstance(value, bool) else value


class OnNewEvents(Strict):
    new_events: Annotated[NewEventsTrigger, BeforeValidator(_counted, json_schema_input_type=int | NewEventsTrigger)] = Field(
        description="Retrains after this number of events, `1000000` or `{count: 1000000, mode: warm}`. A full run learns from them only "
        "if `data.interactions.also` is `events`, a warm run always."
    )


class OnNewData(Strict):
    new_data: NewDataTrigger = Field(description="Retrains after this time, if there are new events.")


class OnAlert(Strict):
    alert: AlertTrigger = Field(description="Retrains when Alertmanager sends an alert (`POST /v1/alerts`).")


_TRIGGERS: dict[str, type[Strict]] = {
    "drift": OnDrift,
    "kpi": OnKpi,
    "new_events": OnNewEvents,
    "new_data": OnNewData,
    "alert": OnAlert,
}
Trigger = Annotated[
    OnDrift | OnKpi | OnNewEvents | OnNewData | OnAlert,
    BeforeValidator(entry("trigger", _TRIGGERS, frozenset(), "{kpi: {hit_rate: -10%}}")),
]


Schedule = Annotated[
    str,
    AfterValidator(lambda text: Cron.parse(text).text),
    Field(json_schema_extra={"examples": ["0 3 * * *", "*/30 8-18 * * MON-FRI", "@daily"]}),
]
TimeZone = Annotated[str, AfterValidator(lambda name: zone(name).key), Field(json_schema_extra={"examples": ["UTC", "Europe/Berlin"]})]


NewRows = Literal["mean", "unknown", "random"]


class Warm(Strict):
    """Initial values and training rows of a warm run."""

    new_rows: NewRows = Field(
        "mean",
        description="Initial vectors of users, items and values that the parent did not know: `mean`, the mean of the known vectors; "
        "`unknown`, the vector learned for unknown values; both with a little noise; `random`, as in a full run.",
    )
    replay: Fraction = Field(
        0.0,
        ge=0,
        le=0.9,
        description="Share of training rows that are older than the parent's snapshot: drawn evenly by the seed from all rows that its "
        "line was trained on. Families that always read all earlier positives do not use it.",
    )


class Auto(Strict):
    """Conditions for a full run in the mode `auto`; otherwise the run is warm. null: not checked."""

    grown: Fraction | None = Field(
        0.2, gt=0, description="Growth of a vocabulary of users or items since the last full run that makes the run full."
    )
    warm_runs: int | None = Field(10, ge=1, le=10_000, description="Number of warm runs since the last full run that makes the run full.")
    forgotten: Fraction | None = Field(
        0.05,
        gt=0,
        lt=1,
        description="Loss of hit rate on earlier holdouts, summed over the warm runs since the last full run, that makes the run full.",
    )
    drift: float | None = Field(
        0.5, gt=0, le=100, description="Drift (psi) of an item feature of the positives that makes the run full, unless chance explains it."
    )

    @model_validator(mode="after")
    def _check_rules(self) -> Auto:
        if all(value is None for _, value in self):
            raise ValueError("auto: all conditions are off; set grown, warm_runs, forgotten or drift")
        return self


class Retrain(Strict):
    on: tuple[Trigger, ...] = Field((), description="Triggers of retraining; a person can always start one.")
    mode: RequestedMode = Field(
        "full",
        description="`full` starts from nothing; `warm` starts from the serving version's weights and learns from the events since its "
        "snapshot; `auto` is warm unless a condition of `auto` asks for a full run.",
    )
    auto: Auto = Field(Auto(), description="Conditions for a full run in the mode `auto`.")
    warm: Warm = Field(Warm(), description="Settings of warm runs.")
    cooldown: Duration = Field(timedelta(hours=6), description="Pause of the triggers after the end of a retraining.")
    schedule: Schedule | None = Field(
        None,
        description="Five cron fields, or a name such as `@daily`. A scheduled run starts even without new data, and reuses stages.",
    )
    timezone: TimeZone = Field("UTC", description="Time zone of the schedule, including changes to and from summer time.")
    schedule_mode: RequestedMode | None = Field(
        None, description="Mode of a scheduled run; `mode` if absent. `full` with `mode: warm` gives a periodic full retraining."
    )
    misfire: Literal["run_once", "skip"] = Field(
        "run_once",
        description="Handling of a due time that cannot start its run (the platform was down, another run is active, a cooldown or a "
        "maximum applies): `run_once` starts one run as soon as possible, however many were missed; `skip` waits for the next due time.",
    )
    misfire_grace: Duration | None = Field(
        None, description="Maximum age of a missed due time. Absent: no limit for `run_once`, one minute for `skip`."
    )
    give_up_after: int = Field(
        3,
        ge=1,
        le=100,
        description="Number of retrainings in a row without an improvement after which drift, KPI and alert triggers pause, until they are "
        "calm, the spec changes or a person retrains; the platform alerts. The cooldown doubles with each of them.",
    )
    follow_up: tuple[Duration, ...] = Field(
        (),
        max_length=10,
        description="Times after the promotion of a version made by a drift, KPI or alert trigger at which to retrain again, such as "
        "`[12h, 2d]`: most data of the first retraining is older than the change.",
    )
    max_per_day: int | None = Field(
        None, ge=1, le=100, description="Maximum number of retrainings in any 24 hours; those started by a person neither count nor wait."
    )

    @property
    def drift(self) -> DriftTrigger | None:
        return next((on.drift for on in self.on if isinstance(on, OnDrift)), None)

    @property
    def kpi(self) -> KpiTrigger | None:
        return next((on.kpi for on in self.on if isinstance(on, OnKpi)), None)

    @model_validator(mode="after")
    def _check_triggers(self) -> Retrain:
        for name, kind in _TRIGGERS.items():
            if sum(isinstance(on, kind) for on in self.on) > 1:
                raise ValueError(f"on: '{name}' is given twice; write one trigger of each kind")
        if any(later <= sooner for sooner, later in pairwise(self.follow_up)):
            raise ValueError("follow_up: the times count from the promotion and must increase, such as [12h, 2d]")
        if self.schedule is None:
            idle = {"timezone", "schedule_mode", "misfire", "misfire_grace"} & self._changed_fields()
            if idle:
                raise ValueError(f"{sorted(idle)[0]} has no effect without a schedule; set schedule, such as '0 3 * * *'")
        if self.auto != Auto() and "auto" not in self._run_modes():
            raise ValueError("'auto' has no effect: no trigger has the mode auto; set mode: auto, or leave it out")
        return self

    def _run_modes(self) -> set[str | None]:
        """Returns the modes of all its runs."""
        return {self.mode, self.schedule_mode, *(getattr(on, name).mode for on in self.on for name in type(on).model_fields)}

    def _changed_fields(self) -> set[str]:
        """Returns the fields that differ from their defaults."""
        return {name for name, field in type(self).model_fields.items() if getattr(self, name) != field.default}
