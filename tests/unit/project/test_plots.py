"""The plots of docs/benchmarks are those of their pages' tables, and a stale plot or a page that cannot be drawn fails the check."""

from __future__ import annotations

from pathlib import Path

import pytest

from docs.plots import Bar, bars, main

PAGE = "# A page\n\n| case | p99, ms |\n| --- | --- |\n| `one` | **1,200** (900 to 1,300) |\n| two | 7 ± 0.5 |\n| three | not measured |\n"
PAGE += "\n<!-- plot: p99, ms -->\n"


def test_the_plots_in_the_repository_are_current(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--check"]) == 0, capsys.readouterr().err


def test_bars_show_the_first_number_of_a_cell_and_its_spread() -> None:
    assert bars(PAGE) == (
        "A page: p99, ms",
        [Bar("one", "1,200", 1200, 900, 1300), Bar("two", "7", 7, 6.5, 7.5), Bar("three", "not measured", None)],
    )


def test_a_stale_plot_and_a_page_without_its_column_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "a.md"
    page.write_text(PAGE)
    assert main([], tmp_path) == 0 and main(["--check"], tmp_path) == 0
    page.write_text(PAGE.replace("1,200", "1,100"))
    assert main(["--check"], tmp_path) == 1
    assert capsys.readouterr().err == "a.svg is stale: run `python -m docs.plots`\n"
    page.write_text(PAGE.replace("<!-- plot: p99", "<!-- plot: p95"))
    assert main(["--check"], tmp_path) == 1
    assert capsys.readouterr().err == "a.md: the first table has no column 'p95, ms'; it has case, p99, ms\n"
