"""Checks of a single batch: each figure with its thresholds and a sentence."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pipelines.data.validation.columns import Columns
from pipelines.data.validation.profile import Profile
from pipelines.data.validation.sifting import Sifted
from shared.contracts.validation import Limits, Validate, ValidateTable
from shared.contracts.validation_report import Check, FaultyFile
from shared.domain.soundness import verdict


def file_checks(faulty: Sequence[FaultyFile], all_bytes: int, wish: Validate) -> Iterator[Check]:
    """Yields the check of unreadable files. `all_bytes`: includes those files."""
    share = sum(file.size for file in faulty) / all_bytes if all_bytes else 0.0
    says = (
        f"{_counted(len(faulty), 'file')} can't be read: " + ", ".join(file.name for file in faulty[:5])
        if faulty
        else "every file can be read"
    )
    if faulty and not share:
        share = 1e-9  # an empty file counts too
    yield check("files", None, share, wish.bad_files, says)


def row_checks(sifted: Sifted, wish: Validate | ValidateTable, unique: Sequence[str]) -> Iterator[Check]:
    """Yields a check per fault, then one for all faults. `unique`: columns whose values no row may repeat."""
    for column, most in wish.nulls.items():
        count = sifted.nulls[column]
        share = count / max(1, sifted.read - sifted.views)
        says = f"column '{column}' has {count:,} nulls, {percent(share)} of the rows" if count else f"column '{column}' has no nulls"
        yield check("nulls", column, share, Limits(warn=None, stop=most), says)
    for fault in sifted.faults:
        share = fault.count / sifted.read
        place = fault.rule.column if fault.rule else None
        name = fault.rule.fault if fault.rule else fault.reason
        yield check(name, place, share, wish.bad_rows, f"{fault.says(unique)} ({percent(share)} of the rows)")
    says = f"{sifted.bad:,} of {sifted.read:,} rows are quarantined" if sifted.bad else "every row is good"
    yield check("bad rows", None, sifted.bad / sifted.read, wish.bad_rows, says)


def item_check(sifted: Sifted, column: str, table: str, wish: Validate) -> Check:
    """Returns the check of items missing from `table`; their rows are quarantined, but don't count as bad rows."""
    unknown = sifted.lacking
    share = unknown.count / sifted.read if unknown else 0.0
    says = f"{unknown.says()} ({percent(share)} of the rows)" if unknown else f"every item is in the items table {table}"
    return check("unknown items", column, share, wish.unknown_items, says)


def batch_checks(profile: Profile, columns: Columns, wish: Validate) -> Iterator[Check]:
    repeats = f"{percent(profile.repeats)} of the rows repeat another one's user, item and time"
    yield check("repeats", None, profile.repeats, wish.repeats, repeats)
    low, high = wish.positives
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


def check(name: str, column: str | None, figure: float, limits: Limits, says: str) -> Check:
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
