"""`doctor` checks this machine for each part of the platform; it starts nothing and imports no framework. `install-triton` installs one."""

from __future__ import annotations

import typer

from services.cli.doctor_checks import CheckFinding, examine
from services.cli.exit_codes import Exit
from services.cli.home import default_home
from services.cli.output import AsJson, say, show_json, show_table


def doctor(as_json: AsJson = False) -> None:
    """Check whether this machine can run the platform, and show how to fix what is missing. Exit code 1 if the platform cannot run."""
    findings = examine(default_home())
    able = all(finding.good for finding in findings if finding.needed)
    if as_json:
        show_json({"able": able, "findings": [_plain(finding) for finding in findings]})
    else:
        show_table(
            ("", "PART", "STATUS", "HOW TO FIX IT"),
            [(_mark(finding), finding.part, finding.detail, "" if finding.good else finding.mend) for finding in findings],
            "",
            drop=("STATUS",),
        )
        say("the platform can run here: eyas up" if able else "the platform cannot run here: fix the lines marked 'missing'")
    if not able:
        raise typer.Exit(Exit.NO)


def install() -> None:
    """Install the embedded Triton (400 MB) in an environment of its own, inside the one of Eyas."""
    from services.wiring.tools import install_triton

    say(f"the embedded Triton is installed in {install_triton()}")


def _mark(finding: CheckFinding) -> str:
    if finding.good:
        return "ok"
    return "missing" if finding.needed else "optional"


def _plain(finding: CheckFinding) -> dict[str, object]:
    return {
        "part": finding.part,
        "good": finding.good,
        "needed": finding.needed,
        "found": finding.detail,
        "mend": "" if finding.good else finding.mend,
    }
