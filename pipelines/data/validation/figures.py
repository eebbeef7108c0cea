"""Checks of a single batch: each figure with its thresholds and a sentence."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pipelines.data.validation.columns import InteractionColumns
from pipelines.data.validation.profile import Profile
from pipelines.data.validation.sifting import Sifted
from shared.contracts.schema import NO_LABEL, NO_TIME
from shared.contracts.validation import CheckLimits, Validate, ValidateTable
from shared.contracts.validation_report import Check, FaultyFile
from shared.domain.soundness import verdict


def file_checks(faulty: Sequence[FaultyFile], all_bytes: int, settings: Validate) -> Iterator[Check]:
    """Yields the check of unreadable files. `all_bytes`: includes those files."""
    share = sum(file.size for file in faulty) / all_bytes if all_bytes else 0.0
    says = (
        f"{_counted(len(faulty), 'file')} cannot be read: " + ", ".join(file.name for file in faulty[:5])
        if faulty
        else "all files are readable"
    )
    if faulty and not share:
        share = 1e-9  # an empty file counts too
    yield check("files", None, share, settings.bad_files, says)


def row_checks(sifted: Sifted, settings: Validate | ValidateTable, unique: Sequence[str]) -> Iterator[Check]:
    """Yields a check per fault, then one for all faults. `unique`: columns whose values no row may repeat."""
    for column, most in settings.nulls.items():
        count = sifted.nulls[column]
        share = count / max(1, sifted.read - sifted.views)
        says = f"column '{column}' has {count:,} nulls, {percent(share)} of the rows" if count else f"column '{column}' has no nulls"
        yield check("nulls", column, share, CheckLimits(warn=None, stop=most), says)
    for fault in sifted.faults:
        share = fault.count / sifted.read
        place = fault.rule.column if fault.rule else None
        name = fault.rule.fault if fault.rule else fault.reason
        yield check(name, place, share, settings.bad_rows, f"{fault.says(unique)} ({percent(share)} of the rows)")
    says = f"{sifted.bad:,} of {sifted.read:,} rows are quarantined" if sifted.bad else "all rows are good"
    yield check("bad rows", None, sifted.bad / sifted.read, settings.bad_rows, says)


def item_check(sifted: Sifted, column: str, table: str, settings: Validate) -> Check:
    """Returns the check of items missing from `table`; their rows are quarantined, but don't count as bad rows."""
    unknown = sifted.lacking
    share = unknown.count / sifted.read if unknown else 0.0
    says = f"{unknown.says()} ({percent(share)} of the rows)" if unknown else f"all items are in the items table {table}"
    return check("unknown items", column, share, settings.unknown_items, says)


def batch_checks(profile: Profile, columns: InteractionColumns, settings: Validate) -> Iterator[Check]:
    if columns.time != NO_TIME:
        repeats = f"{percent(profile.repeats)} of the rows repeat the user, item and time of another row"
        yield check("repeats", None, profile.repeats, settings.repeats, repeats)
    if columns.label == NO_LABEL:
        return
    low, high = settings.positives
    balanced = (low is None or profile.positives >= low) and (high is None or profile.positives <= high)
    wanted = f"; expected {percent(low or 0)} to {percent(1 if high is None else high)}" if not balanced else ""
    yield Check(
        name="positives",
        column=columns.label,
        verdict="pass" if balanced else "warn",
        figure=profile.positives,
        warn=low if low is not None and profile.positives < low else high,
        says=f"{percent(profile.positives)} of the rows are positives{wanted}",
    )


def check(name: str, column: str | None, figure: float, limits: CheckLimits, says: str) -> Check:
    return Check(
        name=name,
        column=column,
        verdict=verdict(figure, limits.warn, limits.stop),
        figure=round(figure, 9),
        warn=limits.warn,
        stop=limits.stop,
        says=says,
    )


def percent(share: float) -> str:
    """Formats a share; never rounds to 0% or 100% unless exact."""
    if 0 < share < 0.0001:
        return "less than 0.01%"
    if 0.9999 < share < 1:
        return "more than 99.99%"
    return f"{share:.2%}" if share < 0.1 else f"{share:.1%}"


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
