"""Names of metrics, the same in gates, in published values and in reports.

    name[@k][/n][{slice}]

`hr@10` uses the full catalogue, `hr@10/99` uses 99 sampled negatives, `hr@10{cold_users}` uses only the cases of that slice. A candidate's
value is `candidate.hr@10`, its standard error `candidate.hr@10.se`. `candidate.hr@10.se_to.serving` is the standard error of the difference
to the serving version's value on the same cases.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from shared.domain.errors import Invalid

RANKING = ("hr", "ndcg")
"""Metrics of the first k of a ranking, full or against sampled negatives."""
RETRIEVAL = ("recall",)
"""Metrics of the k candidates that retrieval returns."""
PLAIN = ("auc",)
"""Metrics of all labelled rows."""
SLICES: Mapping[str, str] = {
    "cold_users": "the fifth of the users with the shortest histories",
    "heavy_users": "the fifth of the users with the longest histories",
    "cold_items": "the fifth of the items with the fewest positives",
    "head_items": "the fifth of the items with the most positives",
    "tail_items": "all other items",
}
"""Cases of each slice by name. Reports have other slices too, such as `genre=Drama`."""

COUNTED = ("users", "calls", "rows")
"""Units of the counts behind a value."""
OLD, FORGOTTEN = "old", "forgotten"
"""Parts of a warm run's metrics: `candidate.old.hr@10/99` uses likes that earlier runs of its lineage held out; `candidate.forgotten` is
the relative loss to the parent's value."""
PATTERN = rf"(?:{'|'.join(RANKING)})@[1-9]\d{{0,2}}(?:/[1-9]\d{{0,3}})?|(?:{'|'.join(RETRIEVAL)})@[1-9]\d{{0,4}}|{'|'.join(PLAIN)}"
"""Pattern of a name without a slice."""
_NAME = re.compile(r"(?P<kind>[a-z][a-z_]*)(?:@(?P<at>\d+))?(?:/(?P<negatives>\d+))?(?:\{(?P<part>[^{}]+)\})?")


@dataclass(frozen=True)
class Metric:
    kind: str
    at: int | None = None
    negatives: int | None = None
    slice: str | None = None

    def __str__(self) -> str:
        at = "" if self.at is None else f"@{self.at}"
        negatives = "" if self.negatives is None else f"/{self.negatives}"
        return f"{self.kind}{at}{negatives}" + (f"{{{self.slice}}}" if self.slice else "")

    @property
    def unsliced(self) -> Metric:
        """The same metric over all cases."""
        return replace(self, slice=None)


def parse_metric(name: str) -> Metric:
    match = _NAME.fullmatch(name)
    base = name if match is None or match["part"] is None else name[: match.start("part") - 1]
    if match is None or not re.fullmatch(PATTERN, base):
        raise Invalid(f"'{name}' is not a metric: expected one such as hr@10, ndcg@10/99, recall@500, auc or hr@10{{cold_users}}")
    at, negatives = match["at"], match["negatives"]
    return Metric(match["kind"], int(at) if at else None, int(negatives) if negatives else None, match["part"])


def certainty(name: str, against: str | None = None) -> str:
    """Returns the name of a value's standard error, or of the standard error of its difference to another model's value."""
    return f"{name}.se" if against is None else f"{name}.se_to.{against}"


def count_of(name: str, counted: str = "users") -> str:
    """Returns the name of the number of users, calls or rows behind a value."""
    return f"{name}.{counted}"


def shared_with(name: str, against: str) -> str:
    """Returns the name of a value on the cases shared with another model, where these are fewer than the value's own cases."""
    return f"{name}.on.{against}"


def is_detail(name: str) -> bool:
    """Returns whether a published number describes another number: a standard error, a count, or a value on shared cases."""
    return name.endswith((".se", *(f".{counted}" for counted in COUNTED))) or ".se_to." in name or ".on." in name
