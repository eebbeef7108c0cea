"""What a version's answers earned, in four counts: each of whole numbers, each along an index."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from sqlalchemy import Connection, Select, func, select

from services.eventlog.tables import impressions, interactions
from shared.domain.earned import MILLIONTHS, Earned

_shown, _done = impressions.c, interactions.c


def earned_by(
    connection: Connection, recommender: str, version: int, since: int, until: int, attribution: int, conversions: Collection[str]
) -> Earned:
    given = (_shown.recommender == recommender, _shown.version == version, _shown.at >= since, _shown.at < until)
    sizes = connection.execute(
        select(_shown.size, func.count().label("answers"), func.count(_shown.hit_at).filter(_shown.hit_at - _shown.at <= attribution))
        .where(*given)
        .group_by(_shown.size)
    ).all()

    def reactions(*columns: Any) -> Select[Any]:
        joined = impressions.join(interactions, _done.answer == _shown.request_id)
        return select(*columns).select_from(joined).where(*given, _shown.hit_at.is_not(None), _done.at - _shown.at <= attribution)

    answers = func.count(_done.answer.distinct())
    kinds = connection.execute(
        reactions(
            _done.kind,
            func.count(),
            func.sum(_done.revenue // MILLIONTHS),  # in two sums, or many large ones would leave the range of whole numbers
            func.sum(_done.revenue % MILLIONTHS),
        ).group_by(_done.kind)
    ).all()
    clicks = connection.execute(reactions(_done.position, answers).group_by(_done.position)).all()
    converted = connection.execute(reactions(answers).where(_done.kind.in_(sorted(conversions)))).scalar_one() if conversions else 0
    return Earned(
        answers=sum(row.answers for row in sizes),
        hits=sum(row[2] for row in sizes),
        conversions=int(converted),
        revenue=sum(int(whole or 0) * MILLIONTHS + int(rest or 0) for _, _, whole, rest in kinds),
        kinds={kind: count for kind, count, _, _ in kinds if kind is not None},
        shown={row.size: row.answers for row in sizes if row.size is not None},
        clicked={position: count for position, count in clicks if position is not None},
    )
