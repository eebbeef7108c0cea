"""Layout of tables: no word is broken, omitted columns are named, and in a pipe each row is one line."""

from __future__ import annotations

import random
from itertools import product

from services.cli.sanitise import cell, plain, width
from services.cli.tables import HARD, Table, laid_out, wrapped

WORDS = ("run", "r01m7z2yyn7qyezgy", "ratings.parquet", "a", "übergroß", "映画", "registered", "0.4213", "3 nulls", "it has, as said,")


def lines(table, room):
    return [line.text() for line in laid_out(table, room)]


def some_table(seed):
    rng = random.Random(seed)
    columns = [f"COLUMN{number}" for number in range(rng.randint(1, 7))]
    rows = [[" ".join(rng.choices(WORDS, k=rng.choice((1, 1, 2, 12)))) for _ in columns] for _ in range(rng.randint(1, 6))]
    return Table.of(columns, rows, drop=rng.sample(columns[1:], k=rng.randint(0, len(columns) - 1)))


SEEDS, WIDTHS = range(25), (20, 40, 80, 200)


def test_no_word_is_broken_and_only_one_long_word_may_overflow(subtests):
    for seed, room in product(SEEDS, WIDTHS):
        with subtests.test(seed=seed, room=room):
            table = some_table(seed)
            known = {word for row in (table.columns, *table.rows) for one in row for word in one.split(" ")}
            for line in laid_out(table, room):
                if line.kind != "note":
                    assert set(line.text().split()) <= known
                assert width(line.text()) <= room or len(line.text().split()) == 1


def test_omitted_columns_are_named_and_the_rest_is_complete(subtests):
    for seed, room in product(SEEDS, WIDTHS):
        with subtests.test(seed=seed, room=room):
            table = some_table(seed)
            found = laid_out(table, room)
            note = " ".join(line.text() for line in found if line.kind == "note").removeprefix("without ").partition(":")[0]
            left_out = [one for one in note.split(", ") if one]
            assert tuple(left_out) == table.drop[: len(left_out)]
            kept = [place for place, name in enumerate(table.columns) if name not in left_out]
            said = [word for line in found if line.kind in {"row", "pair", "rest"} for word in line.text().split()]
            for row in table.rows:
                for place in kept:
                    assert all(said.count(word) for word in row[place].split())


def test_in_a_pipe_each_row_is_one_complete_line(subtests):
    for seed in SEEDS:
        with subtests.test(seed=seed):
            table = some_table(seed)
            found = lines(table, None)
            assert len(found) == 1 + len(table.rows)
            for line, row in zip(found, (table.columns, *table.rows), strict=True):
                assert line.split() == [word for one in row for word in one.split()]


def test_sentences_are_folded_before_columns_are_left_out():
    row = ("r01m7z2yyn7qyezgy", "full", "a reason that goes on and on, and a little further")
    table = Table.of(("RUN", "MODE", "REASON"), [row], drop=("MODE",))
    assert lines(table, 45)[1] == "r01m7z2yyn7qyezgy  full  a reason that goes"
    assert lines(table, 44)[0].split() == ["RUN", "REASON"]
    assert lines(table, 44)[-2:] == ["without MODE: a wider terminal or --json", "shows them"]


def test_a_time_an_id_and_a_named_value_stay_in_one_piece():
    table = Table.of(("AT", "METRICS"), [("2026-01-01 00:00:00", f"auc{HARD}0.5  hr@10{HARD}0.25  ndcg@10{HARD}0.125")])
    indent = " " * 21
    assert lines(table, 34)[1:] == ["2026-01-01 00:00:00  auc 0.5", f"{indent}hr@10 0.25", f"{indent}ndcg@10 0.125"]


def test_where_no_grid_fits_a_row_becomes_a_block():
    table = Table.of(("RUN", "STATE"), [("r01m7z2yyn7qyezgy", "registered"), ("r2", "failed")])
    assert lines(table, 25) == ["RUN    r01m7z2yyn7qyezgy", "STATE  registered", "", "RUN    r2", "STATE  failed"]
    assert lines(table, 15) == ["RUN", "r01m7z2yyn7qyezgy", "STATE", "registered", "", "RUN    r2", "STATE  failed"]


def test_tabs_and_breaks_inside_a_value_are_blanks():
    assert lines(Table.of(("A", "B"), [("one\ttwo\r\nthree\x0bfour", None)]), None)[1] == "one two three four  -"


def test_wide_letters_take_two_places_and_marks_none():
    assert (width("映画"), width("e\u0301"), width("abc")) == (4, 1, 3)
    found = lines(Table.of(("A", "B"), [("映画", "x"), ("ab", "y")]), 20)
    assert found == ["A     B", "映画  x", "ab    y"]


ESCAPES = {
    "\x1b[31mred\x1b[0m": "red",
    "\x1b]0;a title\x07x": "x",
    "\x1b[2J\x1b[Hgone": "gone",
    "a\x08b": "a\ufffdb",
    "\u202eabc": "\ufffdabc",
    "\x9b31m": "\ufffd31m",
    "half \x1b": "half \ufffd",
}


def test_control_characters_of_others_are_removed(subtests):
    for hostile, shown in ESCAPES.items():
        with subtests.test(hostile=hostile):
            assert plain(hostile) == shown
            assert cell(hostile) == shown


def test_text_is_folded_at_blanks_alone():
    assert wrapped("one two three", 7) == ["one two", "three"]
    assert wrapped("unbreakable", 4) == ["unbreakable"]
    assert wrapped("", 4) == [""]
