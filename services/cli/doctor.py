"""`doctor`: what this machine has and lacks for each part, and how to get what it lacks. Starts nothing, imports no framework."""

from __future__ import annotations

import typer

from services.cli.exits import Exit
from services.cli.home import default_home
from services.cli.machine import Finding, examine
from services.cli.shown import AsJson, say, show_json, show_table


def doctor(as_json: AsJson = False) -> None:
    """Show what this machine has and lacks. Exit code 1 if the platform can't run here."""
    found = examine(default_home())
    able = all(one.good for one in found if one.needed)
    if as_json:
        show_json({"able": able, "findings": [_plain(one) for one in found]})
    else:
        show_table(
            ("", "PART", "FOUND", "HOW TO MEND IT"),
            [(_mark(one), one.part, one.found, "" if one.good else one.mend) for one in found],
            "",
            drop=("FOUND",),
        )
        say("the platform can run here: eyas up" if able else "the platform can't run here until the lines marked 'lacks' are mended")
    if not able:
        raise typer.Exit(Exit.NO)


def _mark(one: Finding) -> str:
    if one.good:
        return "ok"
    return "lacks" if one.needed else "could"


def _plain(one: Finding) -> dict[str, object]:
    return {"part": one.part, "good": one.good, "needed": one.needed, "found": one.found, "mend": "" if one.good else one.mend}
