"""What `eyas data` has done: to describe, to convert, to fetch."""

from __future__ import annotations

import contextlib
import hashlib
import http.server
import io
import json
import sys
import threading
import urllib.request
import zipfile
from collections.abc import Iterator
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from pipelines.data.__main__ import main
from pipelines.data.conversion import convert_files
from pipelines.data.description import described
from pipelines.data.sets.archives import ARCHIVES, Archive, fetch_archive
from pipelines.data.sets.written import write_twin
from shared.contracts.datatools import Convert, DescribedData, Downloaded, ToolAnswer
from shared.domain.errors import BadData, Conflict, Damaged, EyasError, Invalid, Unavailable


def frame() -> pl.DataFrame:
    return pl.DataFrame(
        {
            "userId": [3, 1, 2**62 + 1, 1, None],
            "rating": [0.5, float("nan"), 5.0, 5.0, 5.0],
            "title": ["ünï", None, "", "a b", "a b"],
            "genres": [["x", "y"], [], None, ["x"], ["x"]],
            "at": [datetime(2026, 1, day, tzinfo=UTC) for day in range(1, 6)],
            "born": [date(2000, 1, 1), None, None, None, None],
        }
    )


@pytest.mark.requirement("G-05")
def test_each_column_is_described(tmp_path: Path) -> None:
    frame().write_parquet(tmp_path / "a.parquet")
    found = described(str(tmp_path / "a.parquet"), 2, tmp_path / "s")
    assert found.rows == 5
    by_name = {one.name: one for one in found.columns}
    wanted = DescribedData.Column(name="userId", type="Int64", nulls=1, min=1, max=2**62 + 1, distinct=3, top=((1, 2), (3, 1)))
    assert by_name["userId"] == wanted
    assert by_name["title"].top == (("a b", 2), ("", 1))
    assert (by_name["genres"].shortest, by_name["genres"].longest, by_name["genres"].top) == (0, 2, (("x", 3), ("y", 1)))
    assert by_name["at"].min == "2026-01-01T00:00:00+00:00"
    assert by_name["rating"].distinct == 3
    assert DescribedData.model_validate_json(found.model_dump_json()) == found


def test_many_distinct_values_are_estimated_and_none_is_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipelines.data.description._COUNTED", 1000)
    pl.DataFrame({"a": range(50_000)}).write_csv(tmp_path / "a.csv")
    (column,) = described(str(tmp_path / "a.csv"), 5, tmp_path / "s").columns
    assert column.estimated
    assert column.top == ()
    assert column.distinct == pytest.approx(50_000, rel=0.05)


def asked(source: Path, to: Path, **more: Any) -> Convert:
    return Convert(source=str(source), to=str(to), **more)


WAYS: list[list[str]] = [["a.csv"], ["a.tsv"], ["a.inter"], ["a.tfrecord"], ["a.csv", "b.inter", "c.tfrecord.gz", "d.tsv", "e.pq"]]


@pytest.mark.requirement("G-28", "G-29")
def test_rows_stay_what_they_are_from_kind_to_kind(subtests: pytest.Subtests, tmp_path: Path) -> None:
    for number, way in enumerate(WAYS):
        with subtests.test(way=way):
            folder = tmp_path / str(number)
            folder.mkdir()
            write_twin("ml-1m", folder, 3, 3000, parquet=True)
            place, wanted = folder / "interactions.parquet", pl.read_parquet(folder / "interactions.parquet")
            for name in [*way, "last.parquet"]:
                more = {"batch": 100, "grouped": True, "short": {"userId": "u"}} if "tfrecord" in name else {}
                assert convert_files(asked(place, folder / name, **more), folder / "s") == {name: 3000}
                place = folder / name
            assert_frame_equal(pl.read_parquet(place), wanted)
            assert not list(folder.glob(".new-*"))


@pytest.mark.requirement("T-14")
def test_a_named_set_comes_to_its_tables_as_parquet(subtests: pytest.Subtests, tmp_path: Path) -> None:
    for number, name in enumerate(["ml-100k", "ml-1m", "ml-25m", "criteo"]):
        with subtests.test(name=name):
            folder = tmp_path / str(number)
            folder.mkdir()
            write_twin(name, folder / "files", 0, 2000)
            found = convert_files(asked(folder / "files", folder / "to"), folder / "s")
            assert found["interactions.parquet"] == 2000
            assert sorted(found) == sorted(path.name for path in (folder / "to").iterdir())
            assert ("users.parquet" in found) == (name in ("ml-100k", "ml-1m"))
            with pytest.raises(Conflict, match=r"interactions\.parquet: already exists"):
                convert_files(asked(folder / "files", folder / "to"), folder / "s")


REFUSED: list[tuple[str, str, dict[str, Any], str]] = [
    ("a.parquet", "a.parquet", {}, "already exists; name another file, or remove this one"),
    ("a.parquet", "b.xls", {}, "b.xls: unknown file extension; use one of .parquet"),
    ("a.parquet", "b.csv", {}, "column 'genres' is List\\(String\\), which a text file cannot hold; write Parquet or TFRecord"),
    ("a.parquet", "b.csv", {"batch": 3}, "--batch: only for TFRecord; b.csv is not a TFRecord file"),
    ("a.parquet", "b.inter", {}, "'at' is Datetime.*, which a typed header cannot name"),
    ("a.parquet", "b.tfrecord", {"short": {"z": "y"}}, "--short: unknown column 'z'; columns: "),
    ("none.csv", "b.csv", {}, "none.csv: file not found"),
    (".", "to", {"name": "ml-1m"}, "ml-1m not found: expected ratings.dat and movies.dat"),
    (".", "to", {"name": "ml-2m"}, "unknown data set 'ml-2m'"),
    (".", "to", {}, "data set not recognised from its files: name it with --as, or name an output file"),
    (".", "b.csv", {"name": "ml-1m"}, "a data set needs several files; name a folder"),
]


def test_what_cannot_be_converted_is_one_line_and_leaves_nothing(subtests: pytest.Subtests, tmp_path: Path) -> None:
    for number, (source, to, more, said) in enumerate(REFUSED):
        with subtests.test(to=to, more=more):
            folder = tmp_path / str(number)
            folder.mkdir()
            frame().write_parquet(folder / "a.parquet")
            with pytest.raises(EyasError, match=said) as caught:
                convert_files(asked(folder / source, folder / to, **more), folder / "s")
            assert "\n" not in str(caught.value)
            assert sorted(path.name for path in folder.iterdir() if path.name != "s") == ["a.parquet"]


def test_text_that_breaks_a_line_is_not_written_into_a_typed_file(tmp_path: Path) -> None:
    pl.DataFrame({"a": ["x", "y\tz"]}).write_parquet(tmp_path / "a.parquet")
    with pytest.raises(BadData, match="column 'a' has text with tabs or line breaks"):
        convert_files(asked(tmp_path / "a.parquet", tmp_path / "b.item"), tmp_path / "s")


def packed(**files: str) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return stream.getvalue()


@contextlib.contextmanager
def serving(content: bytes, status: int = 200, cut: int = 0) -> Iterator[str]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content[: len(content) - cut])
            self.close_connection = True

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}/ml-1m.zip"
        server.shutdown()
        thread.join()


def fetch(folder: Path, url: str, known: bytes) -> Downloaded:
    """As the platform would, but from this machine."""
    archives = {"ml-1m": Archive(url, len(known), hashlib.sha256(known).hexdigest())}
    return fetch_archive("ml-1m", folder, archives=archives, opener=urllib.request.urlopen)


@pytest.mark.requirement("T-14")
def test_an_archive_is_unpacked_once_it_is_what_it_should_be(tmp_path: Path) -> None:
    content = packed(**{"ml-1m/ratings.dat": "1::2::3::4\n", "ml-1m/README": "read me"})
    with serving(content) as url:
        found = fetch(tmp_path, url, content)
        with pytest.raises(Conflict, match="ml-1m: already exists"):
            fetch(tmp_path, url, content)
    assert (tmp_path / "ml-1m" / "ratings.dat").read_text() == "1::2::3::4\n"
    assert "redistribution and commercial use need their permission" in found.licence
    assert [path.name for path in tmp_path.iterdir()] == ["ml-1m"]


ARCHIVES_REFUSED: list[tuple[bytes, bytes | None, dict[str, int], type[EyasError], str]] = [
    (packed(a="1"), packed(a="2"), {}, Damaged, "not the expected archive: its sha256 differs; nothing was unpacked"),
    (packed(a="11"), packed(a="1"), {}, Damaged, "bytes, expected "),
    (packed(a="1"), packed(a="1"), {"cut": 9}, EyasError, "download failed|bytes, expected"),
    (packed(a="1"), packed(a="1"), {"status": 404}, Unavailable, "download failed: "),
    (packed(**{"../out.txt": "1"}), None, {}, Damaged, "leads out of the folder"),
    (b"no zip", None, {}, Damaged, "cannot be unpacked"),
]


def test_what_is_not_the_archive_is_not_unpacked(subtests: pytest.Subtests, tmp_path: Path) -> None:
    for number, (content, known, how, kind, said) in enumerate(ARCHIVES_REFUSED):
        with subtests.test(said=said):
            folder = tmp_path / str(number)
            folder.mkdir()
            with serving(content, **how) as url, pytest.raises(kind, match=said) as caught:
                fetch(folder / "to", url, known or content)
            assert "\n" not in str(caught.value)
            assert list((folder / "to").iterdir()) == []
            assert not (folder / "out.txt").exists()


def test_only_known_archives_over_https_are_fetched(tmp_path: Path) -> None:
    assert all(one.url.startswith("https://files.grouplens.org/") and len(one.sha256) == 64 for one in ARCHIVES.values())
    with pytest.raises(Invalid, match=r"no archive of 'criteo' .* download Criteo's logs by hand"):
        fetch_archive("criteo", tmp_path)
    with pytest.raises(Invalid, match="not an HTTPS address"):
        fetch_archive("x", tmp_path, archives={"x": Archive("http://127.0.0.1:1/x.zip", 1, "0" * 64)})


def test_one_request_has_one_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    frame().write_parquet(tmp_path / "a.parquet")

    def told(request: str) -> tuple[int, ToolAnswer, str]:
        monkeypatch.setattr(sys, "stdin", io.StringIO(request))
        code, printed = main(), capsys.readouterr()
        return code, ToolAnswer.model_validate_json(printed.out), printed.err

    code, answer, said = told(json.dumps(["describe", {"uri": str(tmp_path / "a.parquet")}]))
    assert (code, answer.found["rows"], said) == (0, 5, "")
    code, answer, said = told(json.dumps(["describe", {"uri": str(tmp_path / "b.parquet")}]))
    assert (code, answer.fault, said) == (2, f"{tmp_path}/b.parquet: file not found", "")
    assert str(told(json.dumps(["descibe", {}]))[1].fault).startswith("unknown tool 'descibe'; known: validate, draft, synth, ")
    assert "unknown field 'url': did you mean 'uri'?" in str(told(json.dumps(["describe", {"url": "x"}]))[1].fault)
    code, answer, said = told("[1]")
    assert (code, said) == (1, "")
    assert str(answer.fault).startswith("unexpected ValueError: ")
