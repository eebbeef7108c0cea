"""How the state of a file is told from another."""

from __future__ import annotations

import os
from pathlib import Path

from shared.datafiles import DataFiles


def test_a_file_is_told_by_its_size_and_the_time_it_was_written_in_words_that_people_read(tmp_path: Path) -> None:
    file = tmp_path / "ratings.csv"
    file.write_text("1234")
    os.utime(file, ns=(0, 1_767_225_600_000_000_007))
    files = DataFiles([str(tmp_path)])
    (name, said), *others = files.fingerprint("ratings.csv").items()
    assert name == str(file.resolve()) and not others
    assert said.startswith("4 bytes of 2026-01-01T00:00:00.000000007Z, changed ")
    os.utime(file, ns=(0, 1_767_225_600_000_000_008))
    assert "000000008Z" in files.fingerprint("ratings.csv")[str(file.resolve())]


def test_what_cannot_be_read_has_no_state(tmp_path: Path) -> None:
    assert DataFiles([str(tmp_path)]).fingerprint("nothere.csv") == {}
    assert DataFiles([str(tmp_path)]).fingerprint("/etc/passwd") == {}
