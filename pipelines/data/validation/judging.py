"""A batch judged: rows first, then its figures, then beside the last accepted batch. Whether it may be used is the worst of it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from pipelines.data.sources import Source
from pipelines.data.validation.columns import Columns, columns_of
from pipelines.data.validation.comparing import bars_of, compare
from pipelines.data.validation.figures import batch_checks, file_checks, row_checks
from pipelines.data.validation.profile import Profile, profile_of
from pipelines.data.validation.rows import row_rules
from pipelines.data.validation.sifting import Sifted, Wanted, sift
from shared.contracts.spec import RecommenderSpec
from shared.contracts.validation_report import Check, Distribution, Report, Rows
from shared.domain.errors import BadData
from shared.domain.soundness import worst

_FILES = 100


@dataclass(frozen=True)
class Judged:
    """`source` has the good rows of the good files. `profile`: None where no row is good."""

    source: Source
    report: Report
    profile: Profile | None


def judge(source: Source, spec: RecommenderSpec, accepted: Profile | None, now: float, quarantine: Path, scratch: Path) -> Judged:
    """Bad rows are written to `quarantine`; no file is left there if there are none. `scratch` is there as long as the good rows are
    read."""
    wish = spec.data.validate_
    columns = columns_of(source, spec)
    source, sifted = _sifted(source, columns, spec, now, quarantine, scratch)
    every = sum(path.stat().st_size for path in source.files) + sum(one.size for one in source.faulty)
    checks: list[Check] = [*file_checks(source.faulty, every, wish), *row_checks(sifted, wish)]
    shown: list[Distribution] = []
    profile = profile_of(sifted.interactions, columns, scratch) if sifted.kept > sifted.views else None
    if profile is not None:
        checks += batch_checks(profile, columns, wish)
        if accepted is not None:
            for check, distribution in compare(sifted.interactions, profile, accepted, columns, wish):
                checks.append(check)
                shown += [distribution] if distribution else []
        else:
            shown += [Distribution(column=name, bars=bars_of(one)) for name, one in profile.columns.items()]
    report = Report(
        recommender=spec.name,
        source=source.name,
        verdict=worst(one.verdict for one in checks),
        rows=Rows(read=sifted.read, kept=sifted.kept, quarantined=sifted.quarantined, pages=None if columns.page is None else sifted.views),
        reasons=sifted.reasons,
        files=tuple(path.name for path in source.files[:_FILES]),
        faulty=source.faulty,
        checks=tuple(checks),
        compared=accepted is not None,
        distributions=tuple(shown),
    )
    return Judged(replace(source, frame=sifted.frame), report, profile)


def refusal(report: Report) -> BadData | None:
    """Why nothing is learned from the batch; None where it may be used."""
    stopped = report.crossed("stop")
    if not stopped:
        return None
    first = stopped[0]
    most = f"{first.stop:.4g}" if first.unit == "index" else f"{(first.stop or 0) * 100:.6g}%"
    more = f"; {len(stopped) - 1} more" if len(stopped) > 1 else ""
    return BadData(f"{report.source}: {first.says}; data.validate allows {most}{more}")


def _sifted(source: Source, columns: Columns, spec: RecommenderSpec, now: float, quarantine: Path, scratch: Path) -> tuple[Source, Sifted]:
    wish = spec.data.validate_
    wanted = Wanted(row_rules(columns, wish, now), wish.unique, tuple(wish.nulls), viewed=columns.viewed())
    try:
        return source, sift(source, wanted, quarantine, scratch)
    except BadData:
        whole = source.without_broken()
        if len(whole.files) == len(source.files):
            raise
        return whole, sift(whole, wanted, quarantine, scratch)
