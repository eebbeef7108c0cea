"""Validates a batch: rows, figures, comparison with the last accepted batch. The verdict is the worst one, tables included."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pipelines.data.sources import SourceRows
from pipelines.data.validation.columns import InteractionColumns, columns_of
from pipelines.data.validation.comparing import compare
from pipelines.data.validation.figures import batch_checks, file_checks, item_check, row_checks
from pipelines.data.validation.moved import bars_of
from pipelines.data.validation.profile import Profile, profile_of
from pipelines.data.validation.rows import UNKNOWN, RowRule, row_rules, unknown_item
from pipelines.data.validation.sifting import RowRules, Sifted, sift
from pipelines.data.validation.tables import JudgedTables
from shared.contracts.spec import RecommenderSpec
from shared.contracts.validation_report import Check, Distribution, Report, Rows, Section
from shared.domain.errors import BadData
from shared.domain.soundness import worst

_FILES = 100


@dataclass(frozen=True)
class Judged:
    """Validated batch. `source` has the good rows of the good files. `profile`: None without good rows."""

    source: SourceRows
    report: Report
    profile: Profile | None
    unknown: int
    """Rows of items that the tables lack."""


def judge(
    source: SourceRows,
    spec: RecommenderSpec,
    accepted: Profile | None,
    now: float,
    quarantine: Path,
    scratch: Path,
    tables: JudgedTables | None = None,
) -> Judged:
    """Validates the batch. Writes bad rows and rows of unknown items to `quarantine`, if there are any. `scratch` must exist as long as the
    good rows are read."""
    settings = spec.data.validate_
    columns = columns_of(source, spec)
    text, lacking = columns.texts.get(columns.item), _unknown_items(columns, tables) if spec.data.items else None
    wanted = RowRules(row_rules(columns, settings, now), settings.unique, tuple(settings.nulls), lacking, columns.viewed())
    source, sifted = _sifted(source, wanted, quarantine, scratch)
    if tables and text:
        tables.refuse_equal_keys(sifted.interactions, columns.item, source.name)
    every = sum(path.stat().st_size for path in source.files) + sum(file.size for file in source.faulty)
    checks: list[Check] = [*file_checks(source.faulty, every, settings), *row_checks(sifted, settings, settings.unique)]
    if tables and lacking:
        checks.append(item_check(sifted, columns.item, tables.items.source.name, settings))
    shown: list[Distribution] = []
    profile = _profile(sifted, columns, tables, scratch) if sifted.good > sifted.views else None
    if profile is not None:
        checks += batch_checks(profile, columns, settings)
        if accepted is not None:
            for check, distribution in compare(sifted.interactions, profile, accepted, columns, settings):
                checks.append(check)
                shown += [distribution] if distribution else []
        else:
            shown += [Distribution(column=name, bars=bars_of(column_profile)) for name, column_profile in profile.columns.items()]
    sections = tables.sections if tables else ()
    verdicts = [check.verdict for check in checks] + [section.verdict for section in sections]
    report = Report(
        recommender=spec.name,
        source=source.name,
        verdict=worst(verdicts),
        rows=Rows(read=sifted.read, kept=sifted.good, quarantined=sifted.quarantined, pages=None if columns.page is None else sifted.views),
        reasons=sifted.reasons,
        files=tuple(path.name for path in source.files[:_FILES]),
        faulty=source.faulty,
        checks=tuple(checks),
        compared=accepted is not None,
        distributions=tuple(shown),
        sections=sections,
    )
    return Judged(replace(source, frame=sifted.frame), report, profile, sifted.lacking.count if sifted.lacking else 0)


def refusal(report: Report) -> BadData | None:
    """Returns why the batch can't be used, or None."""
    tables = [section for section in report.sections if section.name != "events"]
    events = [section for section in report.sections if section.name == "events"]
    parts: list[tuple[Report | Section, str]] = [(table, f"data.{table.name}.validate") for table in tables]
    rows: list[Report | Section] = [report, *events]
    parts += [(part, "data.validate") for part in rows]
    stopped = [(part, field, check) for part, field in parts for check in part.crossed("stop")]
    if stopped:
        part, field, first = stopped[0]
        most = f"{first.stop:.4g}" if first.unit == "index" else f"{(first.stop or 0) * 100:.6g}%"
        more = f"; {len(stopped) - 1} more" if len(stopped) > 1 else ""
        return BadData(f"{part.source}: {first.says}; {field} allows {most}{more}")
    used: list[Report | Section] = [*tables, report]
    return next((_empty(part, tables) for part in used if part.rows.kept <= (part.rows.pages or 0)), None)


def _empty(part: Report | Section, tables: Sequence[Section]) -> BadData:
    """Returns the refusal of a batch without usable rows, whatever the thresholds."""
    if any(reason.endswith(f": {UNKNOWN}") for reason in part.reasons):
        items = next(table.source for table in tables if table.name == "items")
        return BadData(f"{part.source}: no item is in the items table {items}; check data.items.key")
    return BadData(f"{part.source}: no usable rows")


def _unknown_items(columns: InteractionColumns, tables: JudgedTables | None) -> RowRule | None:
    if tables is None or not tables.items.has_rows:
        return None
    return unknown_item(columns.item, tables.item_keys, tables.items.source.name, columns.texts.get(columns.item))


def _profile(sifted: Sifted, columns: InteractionColumns, tables: JudgedTables | None, scratch: Path) -> Profile:
    profile = profile_of(sifted.interactions, columns, scratch)
    return profile.model_copy(update={"tables": tables.profiles}) if tables else profile


def _sifted(source: SourceRows, wanted: RowRules, quarantine: Path, scratch: Path) -> tuple[SourceRows, Sifted]:
    try:
        return source, sift(source, wanted, quarantine, scratch)
    except BadData:
        sound = source.without_broken()
        if len(sound.files) == len(source.files):
            raise
        return sound, sift(sound, wanted, quarantine, scratch)
