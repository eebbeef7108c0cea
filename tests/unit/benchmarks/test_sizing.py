"""The sizing of docs/benchmarks/scaling.md: more load never takes fewer machines, and its totals are those that the command prints."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest

from benchmarks.sizing import DOCUMENTED, Load, beyond, fleet, main, table

DOCUMENT = Path(__file__).parents[3] / "docs/benchmarks/scaling.md"
LOADS = [load for _, load in DOCUMENTED]


def total(load: Load, what: str) -> float:
    return sum(getattr(one, what) * (one.replicas if what in ("cores", "gib") else 1) for one in fleet(load))


FIELDS = ("users", "items", "requests", "recommenders", "actions", "days", "trainings")


def test_more_of_anything_never_takes_less(subtests: pytest.Subtests) -> None:
    for (name, load), field in product(DOCUMENTED, FIELDS):
        with subtests.test(load=name, field=field):
            _never_takes_less(load, field)


def _never_takes_less(load: Load, field: str) -> None:
    loads = [load]
    for _ in range(6):
        loads.append(replace(loads[-1], **{field: getattr(loads[-1], field) * 2}))
    for what in ("cores", "gib", "disk", "month"):
        found = [total(one, what) for one in loads]
        if (field, what) == ("recommenders", "cores") or (field, what) == ("recommenders", "gib"):
            continue  # the same requests are spread over more of them, each of which trains on less
        assert found == pytest.approx(sorted(found)), f"{what} falls as {field} grows"
    if field in ("users", "items", "requests"):
        assert total(loads[-1], "month") > total(loads[0], "month")


@pytest.mark.parametrize("part", ["gateway", "Triton"])
def test_each_replica_of_what_isnt_divided_holds_all_of_it(part: str) -> None:
    held = []
    for requests in (100, 10_000):
        (one,) = (one for one in fleet(Load(users=1e6, items=1e5, requests=requests)) if one.name == part)
        held.append(one.gib)
    assert held[0] == held[1]


def test_what_no_part_can_hold_is_said() -> None:
    small, large, most = LOADS
    assert beyond(small) == beyond(large) == []
    assert [said.partition(":")[0] for said in beyond(most)] == ["gateway", "Triton", "events and state", "etl", "database"]


def test_the_document_has_the_totals_that_the_command_prints(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--documented"]) == 0
    printed = capsys.readouterr().out.strip()
    assert printed == table(DOCUMENTED)
    totals = [[cell.strip(" *") for cell in line.split("|")] for line in printed.splitlines() if "**all**" in line]
    assert len(totals) == len(DOCUMENTED)
    for cells in totals:
        row = " | ".join(cell for cell in cells if cell not in ("", "all"))
        assert f"| {row} |" in DOCUMENT.read_text(), f"docs/benchmarks/scaling.md lacks the row: {row}"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--users", "0"], "--users: a number from 1 to 1e12 is expected, got 0"),
        (["--requests", "nan"], "--requests: a number from 0 to 1e12 is expected, got nan"),
        (["--recommenders", "1.5"], "--recommenders: a whole number is expected, got 1.5"),
        (["--peak", "0.5"], "--peak: a number from 1 to 1e12 is expected, got 0.5"),
    ],
)
def test_what_no_load_can_be_is_refused_in_one_line(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2
    told = capsys.readouterr()
    assert (told.out, told.err) == ("", f"{said}\n")
