"""The plot: one mark a version, and what happened below it."""

from __future__ import annotations

from demo.counting import Bin, Tally
from demo.plot import Moment, plot


def test_the_plot_marks_versions_and_moments() -> None:
    bins = [Bin(second, 1, "stable", 100, 50) for second in range(60)] + [Bin(second, 2, "stable", 100, 80) for second in range(60, 120)]
    text = plot(bins, [Moment(60.0, "version 2 promoted")], width=40, height=8)
    lines = text.splitlines()
    assert any("●" in line for line in lines)
    assert any("○" in line for line in lines)
    assert "● version 1  ○ version 2" in text
    assert "a   60 s  version 2 promoted" in text
    high, low = (next(n for n, line in enumerate(lines) if mark in line and "version" not in line) for mark in ("○", "●"))
    assert high < low
    assert max(len(line) for line in lines[1:9]) <= 7 + 40


def test_stretches_with_few_answers_have_no_mark() -> None:
    text = plot([Bin(0, 1, "stable", 100, 50), Bin(50, 2, "candidate", 3, 0)], [])
    assert "version 1" in text
    assert "version 2" not in text


def test_no_answers_are_said_in_words() -> None:
    assert plot([], []) == "no answers, no plot"


def test_a_single_answer_can_be_plotted() -> None:
    assert "0 s" in plot([Bin(3, 1, "stable", 1, 1)], [Moment(3.5, "start")])


def test_the_tally_counts_whole_seconds_by_version() -> None:
    now = [0.0]
    tally = Tally(lambda: now[0])
    for second, version, hit in [(1.2, 1, True), (1.9, 1, False), (2.5, 2, True), (3.1, 1, True)]:
        now[0] = second
        tally.answer(version, "stable", hit)
    assert tally.rate(1, 3, 1) == (2, 0.5)
    assert tally.rate(1, 3) == (3, 2 / 3)
    assert tally.rate(1, 2.5, 2) == (0, None)
    assert tally.answers == 4
