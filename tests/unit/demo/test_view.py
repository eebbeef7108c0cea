"""The view without a terminal: lines that stay, and no flood of them."""

from __future__ import annotations

import io

from rich.console import Console

from demo.view import PLAIN_EVERY, View


def test_what_goes_on_is_said_when_it_changes_and_now_and_then() -> None:
    out, now = io.StringIO(), [0.0]
    view = View(Console(file=out, width=120), lambda: "no users yet", clock=lambda: now[0])
    with view:
        for second in (1.0, 1.5, 2.0, 2.5):
            now[0] = second
            view.show("training")
        assert out.getvalue().count("training; no users yet") == 1
        now[0] = 2.5 + PLAIN_EVERY
        view.show("training", loss="0.4")
        assert out.getvalue().count("training; loss 0.4; no users yet") == 1
        view.show("exporting")
    assert "0:12    exporting" in out.getvalue()


def test_an_act_opens_with_its_title_and_what_is_told() -> None:
    out, now = io.StringIO(), [61.0]
    view = View(Console(file=out, width=120), lambda: "", clock=lambda: now[0])
    now[0] = 126.0
    view.act("Drift", "Tastes move.")
    assert "1:05  Drift\n1:05  Tastes move." in out.getvalue()


def test_a_terminal_gets_a_panel_of_the_moment() -> None:
    console = Console(file=io.StringIO(), width=120, force_terminal=True)
    view = View(console, lambda: "120 answers")
    view.act("Drift", "Tastes move.")
    view.show("waiting", observed="100 users")
    with console.capture() as seen:
        console.print(view)
    assert all(word in seen.get() for word in ("Drift", "waiting", "100 users", "120 answers"))
