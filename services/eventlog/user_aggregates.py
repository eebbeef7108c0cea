"""Sums over users, computed by the database: a user is one observation, with any number of answers."""

from __future__ import annotations

from typing import Any

from sqlalchemy import BigInteger, ColumnElement, Float, Select, Subquery, case, cast, func, select
from sqlalchemy.sql.base import ReadOnlyColumnCollection

from shared.domain.sequential_test import VariantSample


def hits(answers: ReadOnlyColumnCollection[str, Any], attribution: int) -> ColumnElement[int]:
    """Counts the answers with a positive within the attribution window."""
    return func.coalesce(func.sum(case((answers.hit_at - answers.at <= attribution, 1), else_=0)), 0)


def over_users(users: Subquery, group: str) -> Select[Any]:
    """Sums the users' `answers` and `hits` by the column `group`, which comes first in the result."""
    rate = cast(users.c.hits, Float) / users.c.answers
    return select(
        users.c[group],
        func.count().label("users"),
        func.sum(rate).label("total"),
        func.sum(rate * rate).label("squares"),
        cast(func.sum(users.c.answers), BigInteger).label("answers"),
        cast(func.sum(users.c.hits), BigInteger).label("hits"),
        func.sum(case((users.c.hits > 0, 1), else_=0)).label("converted"),
    ).group_by(users.c[group])


def sample(row: Any) -> VariantSample:
    return VariantSample(row.users, row.total, row.squares, row.answers, row.hits, row.converted)
