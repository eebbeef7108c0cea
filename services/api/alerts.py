"""Alertmanager's webhook: alerts that a recommender's spec lists start its retraining.

Each alert has its own outcome. An alert that cannot start anything does not stop the others, and is not an error of the request: after an
error Alertmanager would deliver the whole group again. An alert that was held back may start a run when it is delivered again.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AwareDatetime, BaseModel, FailFast, Field

from services.api.access import Caller, RoleRouter, Who
from services.api.dependencies import ControlParts, With
from services.api.rate_limits import ALERTS
from shared.contracts.plans import retrain_plan
from shared.domain.access import Role
from shared.domain.errors import Conflict, NotFound
from shared.domain.machine import Request
from shared.domain.retrainer import blocked

room = RoleRouter("monitoring")

ACTOR = "alertmanager"
_LONGEST_REASON = 300

Text = Annotated[str, Field(max_length=4096)]
Outcome = Literal["asked", "held back", "taken already", "resolved", "not listed", "unknown"]


class Alert(BaseModel):
    """Fields of an alert that are read; other fields of Alertmanager are ignored."""

    status: Literal["firing", "resolved"]
    labels: dict[Text, Text]
    annotations: dict[Text, Text] = Field({})
    starts_at: AwareDatetime = Field(alias="startsAt")
    fingerprint: str = Field(min_length=1, max_length=64)

    @property
    def key(self) -> str:
        """Returns the same key for every delivery of this firing."""
        return f"{self.fingerprint}@{self.starts_at.isoformat()}"

    @property
    def name(self) -> str:
        return self.labels.get("alertname", "")

    @property
    def reason(self) -> str:
        summary = self.annotations.get("summary") or self.annotations.get("description") or ""
        text = " ".join(f"{self.name}: {summary}".split()) if summary else self.name
        return text[:_LONGEST_REASON]


class Webhook(BaseModel):
    version: Literal["4"]
    alerts: Annotated[list[Alert], FailFast(), Field(max_length=1000)]


class AlertAnswer(BaseModel):
    fingerprint: str
    alertname: str
    outcome: Outcome
    detail: str


class Answers(BaseModel):
    alerts: list[AlertAnswer] = Field(description="Results, one for each alert, in the order of the alerts.")


@room.create("/v1/alerts", Role.OPERATOR, work=ALERTS)
def take_alerts(parts: With, who: Who, webhook: Webhook) -> Answers:
    """Starts retrainings by alerts: a firing alert asks the retrainer of its `recommender` label, if `retrain.on` lists its `alertname`."""
    answers = []
    for alert in webhook.alerts:
        outcome, detail = _answer(parts, who, alert)
        answers.append(AlertAnswer(fingerprint=alert.fingerprint, alertname=alert.name, outcome=outcome, detail=detail))
    return Answers(alerts=answers)


def _answer(parts: ControlParts, who: Caller, alert: Alert) -> tuple[Outcome, str]:
    if alert.status == "resolved":
        return "resolved", "nothing to do"
    name = alert.labels.get("recommender", "")
    if not name:
        return "unknown", "the alert has no label 'recommender'"
    try:
        spec = parts.recommenders.get(name).spec if who.sees(name) else None
    except NotFound:
        spec = None
    if spec is None:
        return "unknown", f"unknown recommender '{name[:80]}'"
    plan = retrain_plan(spec)
    if alert.name not in plan.alerts:
        return "not listed", f"the spec of '{name}' does not list this alert; add it to retrain.on: [alert: {{names: [...]}}]"
    try:
        record = parts.retrainers.get(name)
    except NotFound:
        return "held back", f"the retrainer of '{name}' is being created"
    if alert.key in record.status.alerts:
        return "taken already", "this alert has already started its retraining"
    if record.request is not None:
        same = record.request.key == alert.key
        return ("asked", "the request is being processed") if same else ("held back", f"another request is pending ({record.request.verb})")
    now = parts.clock.now()
    by = blocked("alert", record.status, parts.watch(name), plan, now)
    if by is None or not any((entry.key, entry.by) == (alert.key, by) for entry in record.status.held):  # else in the history
        try:
            parts.retrainers.ask(name, Request("alert", ACTOR, alert.reason, alert.key), now)
        except Conflict as error:
            return "held back", str(error)
        parts.wake()
    return ("asked", "a retraining starts") if by is None else ("held back", by)
