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

Wish = Literal["full", "warm", "auto"]
TriggerMode = Annotated[Wish | None, Field(description="How to retrain when this trigger fires; as `retrain.mode` says, when absent.")]


class DriftTrigger(Strict):
    """Thresholds apply to the size without the part that chance explains; null turns a detector off."""

    psi: float | None = Field(
        0.2,
        gt=0,
        le=100,
        description="Population stability index of an item feature between the likes of the serving version's first days and the "
        "newest ones; null: not looked at.",
    )
    new: Fraction | None = Field(
        0.05, gt=0, le=1, description="By how much more of the likes are of items that the serving version doesn't know."
    )
    nulls: Fraction | None = Field(0.05, gt=0, le=1, description="By how much more of the likes are of items without a value of a feature.")
    scores: float | None = Field(
        None, gt=0, le=1, description="Greatest distance between the distributions of the scores shown, then and now. Measured in any case."
    )
    min_events: int = Field(1000, ge=100, le=1_000_000, description="Likes, and scores shown, on each side of the comparison: a window.")
    looks: int = Field(
        3, ge=1, le=100, description="How many looks in a row must say so; there are four in a window. As many clear ones end it."
    )
    season: Season = Field(
        "none",
        description="Where what is liked follows the hour: the newest window is compared with the same hours of the version's first day "
        "(`day`), or first week (`week`); `auto`: its first day until a week has passed, then its first week. It waits for a full day, or "
        "week. `none`: with the version's first window.",
    )
    mode: Wish = Field("warm", description="How to retrain when this trigger fires.")

    def thresholds(self) -> dict[str, float]:
        """Returns the thresholds of the detectors that may start a retraining, by name."""
        return {name: value for name in DETECTORS if (value := getattr(self, name)) is not None}

    @model_validator(mode="after")
    def _something_counts(self) -> DriftTrigger:
        if not self.thresholds():
            raise ValueError(f"drift: nothing is left that could fire; give one of {', '.join(DETECTORS)} a threshold")
        return self


class RateRule(Strict):
    """Conditions on a rate: a fall, or a limit."""

    fall: Annotated[Fraction, Field(lt=0, gt=-1)] | None = Field(
        None, description="Relative fall below what was earned before, such as -10%."
    )
    min: Annotated[Fraction, Field(gt=0, lt=1)] | None = Field(
        None,
        description="Rate of the newest day, below which it is too little whatever it was before; of the newest window without a season.",
    )

    @model_validator(mode="after")
    def _says_what(self) -> RateRule:
        if self.fall is None and self.min is None:
            raise ValueError("say a fall such as -10%, or a limit such as {min: 0.05}")
        return self


def _a_fall(value: Any) -> Any:
    return {"fall": value} if isinstance(value, int | float | str) and not isinstance(value, bool) else value


FallOrRule = Annotated[RateRule, BeforeValidator(_a_fall, json_schema_input_type=float | str | RateRule)]


class KpiTrigger(Strict):
    hit_rate: FallOrRule | None = Field(
        None,
        description="Of the answers, those with a hit: a fall such as `-10%`, a limit such as `{min: 0.05}`, or both. If no rate is given, "
        "`hit_rate: -10%`.",
    )
    conversion: FallOrRule | None = Field(None, description="Of the users, those with at least one hit: the same.")
    window: Duration = Field(
        timedelta(hours=1),
        description="How often it is looked at: four times in a window; with a season once a minute at most.",
    )
    season: Season = Field(
        "auto",
        description="What answers are compared with: the same hours of earlier days (`day`) or of earlier weeks (`week`), so that a night "
        "or a weekend is no fall; `auto`: days until there is a full week of answers, then weeks. It waits until there is a full day, or "
        "week. `none`: all earlier answers of the version that serves.",
    )
    min_answers: int = Field(500, ge=50, description="Answers on each side of the comparison.")
    mode: Wish = Field("full", description="How to retrain when this trigger fires.")

    @model_validator(mode="after")
    def _looks_at_a_rate(self) -> KpiTrigger:
        return self if self.hit_rate or self.conversion else self.model_copy(update={"hit_rate": RateRule(fall=-0.1)})

    def rates(self) -> dict[Goal, RateRule]:
        """Returns the rates with a rule."""
        return {name: rate for name, rate in (("hit_rate", self.hit_rate), ("conversion", self.conversion)) if rate is not None}  # type: ignore[misc]

    def thresholds(self) -> dict[str, float]:
        """Returns the size from which each detector's reading counts."""
        falls: dict[str, float] = {name: -rate.fall for name, rate in self.rates().items() if rate.fall is not None}
        return {**falls, **{limit_detector(name): 0.0 for name, rate in self.rates().items() if rate.min is not None}}


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
    BeforeValidator(entry("trigger", _TRIGGERS, frozenset(), "{kpi: {hit_rate: -10%}}")),
]


def _schedule(value: str) -> str:
    return Cron.parse(value).text


Schedule = Annotated[
    str, AfterValidator(_schedule), Field(json_schema_extra={"examples": ["0 3 * * *", "*/30 8-18 * * MON-FRI", "@daily"]})
]
TimeZone = Annotated[str, AfterValidator(lambda name: zone(name).key), Field(json_schema_extra={"examples": ["UTC", "Europe/Berlin"]})]


NewRows = Literal["mean", "unknown", "random"]


class Warm(Strict):
    """Initial values and training rows of a warm run."""

    new_rows: NewRows = Field(
        "mean",
        description="Where vectors of users, items and values begin that the parent didn't know: `mean`, at the mean of those it knew; "
        "`unknown`, at what it has learned of strangers; both with a little noise; `random`, as at first.",
    )
    replay: Fraction = Field(
        0.0,
        ge=0,
        le=0.9,
        description="Share of the rows to train on that are older than the parent's snapshot: drawn by the seed from all that its line has "
        "trained on, evenly. Families that read every like known so far anyway take none.",
    )


class Auto(Strict):
    """Conditions for a full run in the mode `auto`; otherwise the run is warm. null: not checked."""

    grown: Fraction | None = Field(
        0.2, gt=0, description="A vocabulary of users or items has grown by more than this since the last full run."
    )
    warm_runs: int | None = Field(10, ge=1, le=10_000, description="So many warm runs have followed each other since the last full one.")
    forgotten: Fraction | None = Field(
        0.05,
        gt=0,
        lt=1,
        description="Warm runs since the last full one have together lost more than this of the hit rate on what was held out before.",
    )
    drift: float | None = Field(
        0.5, gt=0, le=100, description="An item feature of the likes has drifted farther than this psi, and chance can't explain it."
    )

    @model_validator(mode="after")
    def _something_decides(self) -> Auto:
        if all(value is None for _, value in self):
            raise ValueError("auto: nothing is left that could ask for a full run: give grown, warm_runs, forgotten or drift a value")
        return self


class Retrain(Strict):
    on: tuple[Trigger, ...] = Field((), description="What starts a retraining; by hand it can always be started.")
    mode: Wish = Field(
        "full",
        description="`warm` starts from the serving version's weights and learns from the events since its snapshot; `auto` is warm "
        "unless `auto` below asks for a full run.",
    )
    auto: Auto = Field(Auto(), description="When `auto` retrains in full.")
    warm: Warm = Field(Warm(), description="How a warm run goes on from its parent.")
    cooldown: Duration = Field(timedelta(hours=6), description="After one retraining has ended, triggers wait this long.")
    schedule: Schedule | None = Field(
        None,
        description="Five cron fields, or `@daily` and the like. A scheduled run starts whether or not there is anything new: stages whose "
        "inputs are the same are cheap.",
    )
    timezone: TimeZone = Field("UTC", description="On whose wall clock the schedule is read, through changes to and from summer time.")
    schedule_mode: Wish | None = Field(
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
    give_up_after: int = Field(
        3,
        ge=1,
        le=100,
        description="Retrainings in a row that do not help, after which drift, hit rate and alerts start no other: it alerts, until it is "
        "calm, the spec changes or a person retrains. The cooldown doubles with each of them.",
    )
    follow_up: tuple[Duration, ...] = Field(
        (),
        max_length=10,
        description="So long after a version by drift, hit rate or an alert was promoted, another one is made, `[12h, 2d]`: the "
        "first one is early, and most of what it learned from is older than what it was made for.",
    )
    max_per_day: int | None = Field(
        None, ge=1, le=100, description="Most retrainings in any 24 hours; those asked for by hand neither count nor wait."
    )

    @property
    def drift(self) -> DriftTrigger | None:
        return next((on.drift for on in self.on if isinstance(on, OnDrift)), None)

    @property
    def kpi(self) -> KpiTrigger | None:
        return next((on.kpi for on in self.on if isinstance(on, OnKpi)), None)

    @model_validator(mode="after")
    def _one_of_a_kind(self) -> Retrain:
        for name, kind in _TRIGGERS.items():
            if sum(isinstance(on, kind) for on in self.on) > 1:
                raise ValueError(f"on: '{name}' is given twice; write one trigger of each kind")
        if any(later <= sooner for sooner, later in pairwise(self.follow_up)):
            raise ValueError("follow_up: the times count from the promotion and must rise, such as [12h, 2d]")
        if self.schedule is None:
            idle = {"timezone", "schedule_mode", "misfire", "misfire_grace"} & self._changed_fields()
            if idle:
                raise ValueError(f"{sorted(idle)[0]} says something about a schedule, and there is none: add schedule, such as '0 3 * * *'")
        if self.auto != Auto() and "auto" not in self._wishes():
            raise ValueError("'auto' has no effect: no run chooses between warm and full: say mode: auto, or leave it out")
        return self

    def _wishes(self) -> set[str | None]:
        """Returns the modes of all its runs."""
        return {self.mode, self.schedule_mode, *(getattr(on, name).mode for on in self.on for name in type(on).model_fields)}

    def _changed_fields(self) -> set[str]:
        """Returns the fields that differ from their defaults."""
        return {name for name, field in type(self).model_fields.items() if getattr(self, name) != field.default}
