"""The trials of a search on disk: whole lines, one search a folder, one process at a time; and a worker that dies."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipelines.trials import ledger
from shared.contracts.tuning import TRIALS, TriedRow
from shared.domain.errors import BadData, Invalid

FENCE = {"data": "abc", "ranges": {"params.width": {"from": 1, "to": 2}}, "metric": "ndcg@10"}


def row(number: int) -> TriedRow:
    return TriedRow(number=number, params={"params.width": 3}, state="done", value=0.1 + number, metrics={"hr@10": 1 / 3})


def test_what_was_appended_is_there_again_to_the_last_bit(tmp_path: Path) -> None:
    with ledger.opened(tmp_path / "new", FENCE) as kept:
        for number in range(3):
            kept.append(row(number))
    with ledger.opened(tmp_path / "new", FENCE) as kept:
        assert kept.rows == [row(0), row(1), row(2)]


@pytest.mark.parametrize("cut", [1, 5, 60])
def test_a_line_that_a_death_has_cut_is_taken_away(tmp_path: Path, cut: int) -> None:
    with ledger.opened(tmp_path, FENCE) as kept:
        kept.append(row(0))
        kept.append(row(1))
    path = tmp_path / TRIALS
    path.write_bytes(path.read_bytes()[:-cut])
    with ledger.opened(tmp_path, FENCE) as kept:
        assert kept.rows == [row(0)]
        kept.append(row(1))
    with ledger.opened(tmp_path, FENCE) as kept:
        assert kept.rows == [row(0), row(1)]


@pytest.mark.parametrize("damage", [b"{}\n", b"\xff\xfe\n", b"null\n"])
def test_a_damaged_line_is_named(tmp_path: Path, damage: bytes) -> None:
    with ledger.opened(tmp_path, FENCE) as kept:
        kept.append(row(0))
        kept.append(row(1))
    path = tmp_path / TRIALS
    first, second = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(first + damage + second)
    with pytest.raises(BadData, match=r"trials\.jsonl: line 2 is damaged"), ledger.opened(tmp_path, FENCE):
        pass


def test_another_search_in_the_same_folder_is_refused_and_says_what_differs(tmp_path: Path) -> None:
    with ledger.opened(tmp_path, FENCE) as kept:
        kept.append(row(0))
    for other, said in (
        ({"data": "xyz"}, "a search with other data:"),
        ({"metric": "hr@10", "ranges": {}}, "a search with other ranges and metric:"),
    ):
        with pytest.raises(Invalid, match=said), ledger.opened(tmp_path, FENCE | other):
            pass
    with ledger.opened(tmp_path, FENCE):
        pass


def test_a_search_without_a_trial_leaves_its_folder_to_another(tmp_path: Path) -> None:
    with pytest.raises(BadData, match="unreadable"), ledger.opened(tmp_path, FENCE):
        raise BadData("unreadable")
    with ledger.opened(tmp_path, FENCE | {"data": "mended"}) as kept:
        kept.append(row(0))
    with pytest.raises(Invalid, match="a search with other data:"), ledger.opened(tmp_path, FENCE):
        pass


@pytest.mark.parametrize("damage", ["[]", "{", "null"])
def test_a_damaged_description_of_the_search_is_named(tmp_path: Path, damage: str) -> None:
    with ledger.opened(tmp_path, FENCE) as kept:
        kept.append(row(0))
    (tmp_path / ledger.SEARCH).write_text(damage)
    with pytest.raises(BadData, match=r"search\.json: the file is damaged: choose another folder"), ledger.opened(tmp_path, FENCE):
        pass


def test_two_searches_at_once_in_one_folder_are_refused(tmp_path: Path) -> None:
    refused = pytest.raises(Invalid, match="another search is running there")
    with ledger.opened(tmp_path, FENCE), refused, ledger.opened(tmp_path, FENCE):
        pass
    with ledger.opened(tmp_path, FENCE):
        pass


def test_folders_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(Invalid, match="cannot write to the folder"), ledger.opened(tmp_path / "file" / "x", FENCE):
        pass
    (tmp_path / "odd").mkdir()
    (tmp_path / "odd" / TRIALS).write_text("")
    with pytest.raises(BadData, match="so its search is unknown"), ledger.opened(tmp_path / "odd", FENCE):
        pass
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / ledger.SEARCH).write_text("{")
    with pytest.raises(BadData, match="the file is damaged"), ledger.opened(tmp_path / "bad", FENCE):
        pass
