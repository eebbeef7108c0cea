"""What a metric is called, everywhere: in gates, in what stages publish and in reports.

    name[@k][/n][{slice}]

`hr@10` is over the full catalogue, `hr@10/99` against 99 sampled negatives, `hr@10{cold_users}` of those cases alone. A contender's
value is `candidate.hr@10`; how sure it is, `candidate.hr@10.se` (its standard error), and `candidate.hr@10.se_to.serving`, that of the
difference between both on the same cases.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from shared.domain.errors import Invalid

RANKING = ("hr", "ndcg")
"""Of the first k of a ranking, full or against sampled negatives."""
RETRIEVAL = ("recall",)
"""Of the k candidates that are retrieved."""
PLAIN = ("auc",)
"""Of all labelled rows."""
SLICES: Mapping[str, str] = {
    "cold_users": "of the fifth of the users of whom least is known",
    "heavy_users": "of the fifth of whom most is known",
    "cold_items": "of the fifth of the items that fewest liked",
    "head_items": "of the fifth that most liked",
    "tail_items": "of all others",
}
"""By name, which cases they are made of. Reports have others too, such as `genre=Drama`."""

COUNTED = ("users", "calls", "rows")
"""What a value may rest on."""
OLD, FORGOTTEN = "old", "forgotten"
"""Of a warm run: `candidate.old.hr@10/99` is of likes that its line has held out before, `candidate.forgotten` by how much it is below the
parent's, relative to that."""
PATTERN = rf"(?:{'|'.join(RANKING)})@[1-9]\d{{0,2}}(?:/[1-9]\d{{0,3}})?|(?:{'|'.join(RETRIEVAL)})@[1-9]\d{{0,4}}|{'|'.join(PLAIN)}"
"""Without a slice."""
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
        """The same of all cases."""
        return replace(self, slice=None)


def parse_metric(name: str) -> Metric:
    match = _NAME.fullmatch(name)
    base = name if match is None or match["part"] is None else name[: match.start("part") - 1]
    if match is None or not re.fullmatch(PATTERN, base):
        raise Invalid(f"'{name}' is no metric: expected one such as hr@10, ndcg@10/99, recall@500, auc or hr@10{{cold_users}}")
    at, negatives = match["at"], match["negatives"]
    return Metric(match["kind"], int(at) if at else None, int(negatives) if negatives else None, match["part"])


def certainty(name: str, against: str | None = None) -> str:
    """The name of a value's standard error, or of the standard error of its difference to another contender's value."""
    return f"{name}.se" if against is None else f"{name}.se_to.{against}"


def count_of(name: str, counted: str = "users") -> str:
    """The name of the number of users, calls or rows that a value rests on."""
    return f"{name}.{counted}"


def shared_with(name: str, against: str) -> str:
    """The name of a value on the cases that another contender was judged on too, where these are fewer than its own."""
    return f"{name}.on.{against}"


def is_detail(name: str) -> bool:
    """Whether a published number describes another one: its standard error, its count, its value on shared cases."""
    return name.endswith((".se", *(f".{counted}" for counted in COUNTED))) or ".se_to." in name or ".on." in name
