"""What holds of data in a bucket of any S3 server: what a URI means, and fingerprints; subclasses give `server`."""

from __future__ import annotations

from pathlib import Path

import pytest

from shared.contracts.sources import EncoderFile, ImagesFolder, Place
from shared.datafiles import DataFiles, data_objects
from shared.datafiles.object_store import ObjectStore
from shared.domain.errors import BadData, EyasError, Invalid, Unavailable, Unsupported
from tests.servers.s3_server import Between, S3Server
from tests.servers.s3_stub import S3Stub

ROOTS = ("/srv/data", "s3://lake/films")
CONTENT = bytes(range(256)) * 400
Server = S3Server | S3Stub


def fill(server: Server, folder: Path, many: int) -> None:
    file = folder / "file"
    file.write_text("userId\n1\n")
    for key in ("films/a.csv", "films/deep/b c+ü.csv", "films/deep/_hidden.csv", "films/notes.md", "films/list/x/y.parquet", "other.csv"):
        server.put(file, "lake", key)
    for number in range(many):
        server.put(file, "lake", f"films/many/{number:03}z.csv")
    file.write_text("")
    server.put(file, "lake", "films/empty.csv")


def store(server: Server, **changes: str) -> ObjectStore:
    return ObjectStore(server.environment | changes, tries=2)


class S3ObjectSuite:
    many: int
    """Objects in the longest folder: more than one page of a list has."""

    @pytest.mark.requirement("G-29")
    @pytest.mark.parametrize(
        ("uri", "keys"),
        [
            ("s3://lake/films/a.csv", ["films/a.csv"]),
            ("s3://lake/films/deep", ["films/deep/b c+ü.csv"]),
            ("s3://lake/films/deep/", ["films/deep/b c+ü.csv"]),
            ("s3://lake/films/*a.csv", ["films/a.csv"]),
            ("s3://lake/films/**/[!_0-9e]*.csv", ["films/a.csv", "films/deep/b c+ü.csv"]),
            ("s3://lake/films/?.csv", ["films/a.csv"]),
            ("s3://lake/films/**/y.parquet", ["films/list/x/y.parquet"]),
        ],
    )
    def test_a_uri_is_an_object_a_folder_or_a_pattern(self, uri: str, keys: list[str], server: Server) -> None:
        assert [one.key for one in data_objects(uri, ROOTS, store(server))] == keys

    def test_a_long_list_is_read_to_its_end(self, server: Server) -> None:
        assert len(data_objects("s3://lake/films/many", ROOTS, store(server))) == self.many

    @pytest.mark.parametrize(
        ("uri", "kind", "said"),
        [
            ("s3://lake/films/none.csv", BadData, "object not found"),
            ("s3://lake/films/none*.csv", BadData, "no object matches"),
            ("s3://lake/films/empty.csv", BadData, "the object is empty"),
            ("s3://lake/films/notes.md", Unsupported, "not a data file: only names ending in .parquet"),
            ("s3://lake/films/[z-a].csv", Invalid, "its brackets are not a valid pattern"),
            ("s3://L/films/a.csv", Invalid, "expected s3://BUCKET/KEY"),
            ("s3://pond/a.csv", BadData, "bucket not found"),
        ],
    )
    def test_what_is_not_there_is_said(self, uri: str, kind: type[EyasError], said: str, server: Server) -> None:
        with pytest.raises(kind, match=said):
            data_objects(uri, (*ROOTS, "s3://pond"), store(server))

    def test_an_object_that_is_written_anew_while_it_is_read_is_refused(self, server: Server, tmp_path: Path) -> None:
        file = tmp_path / "x.csv"
        file.write_text("userId\n1\n")
        uri = server.put(file, "lake", "films/x.csv")
        (one,) = data_objects(uri, ROOTS, store(server))
        file.write_text("userId\n2\n")
        server.put(file, "lake", "films/x.csv")
        with pytest.raises(BadData, match=r"s3://lake/films/x\.csv: changed while it was read"):
            store(server).fetch(one.uri, tmp_path / "got.csv", one.tag)
        assert [one.tag] != [other.tag for other in data_objects(uri, ROOTS, store(server))]
        (server.buckets / "lake/films/x.csv").unlink()

    def test_a_fingerprint_tells_one_state_of_an_object_from_another(self, server: Server, tmp_path: Path) -> None:
        file = tmp_path / "x.csv"
        file.write_text("userId\n1\n")
        uri = server.put(file, "lake", "films/new/x.csv")
        files = DataFiles(ROOTS, lambda: store(server))
        before = files.fingerprint(uri)
        assert list(before) == [uri]
        assert files.fingerprint(uri) == before
        file.write_text("userId\n2\n")
        server.put(file, "lake", "films/new/x.csv")
        assert files.fingerprint(uri) != before
        assert files.fault(Place(uri=uri)) is None
        assert list(files.fingerprint("s3://lake/films/many")) == [f"s3://lake/films/many ({self.many} files)"]
        assert files.fingerprint("s3://lake/films/none.csv") == {}
        assert "object not found" in str(files.fault(Place(uri="s3://lake/films/none.csv")))
        (server.buckets / "lake/films/new/x.csv").unlink()

    @pytest.mark.requirement("G-30")
    def test_an_encoder_and_a_folder_of_images_in_a_store_are_told_by_their_objects(self, server: Server, tmp_path: Path) -> None:
        file = tmp_path / "x.png"
        file.write_text("1")
        for key in ("films/words.onnx", "films/posters/a.png", "films/posters/deep/b.png", "films/postersize.png"):
            server.put(file, "lake", key)
        files = DataFiles(ROOTS, lambda: store(server))
        assert list(files.fingerprint("s3://lake/films/words.onnx", "encoder")) == ["s3://lake/films/words.onnx"]
        found = files.fingerprint("s3://lake/films/posters", "images")
        assert sorted(found) == ["s3://lake/films/posters/a.png", "s3://lake/films/posters/deep/b.png"]
        assert files.read("s3://lake/films/words.onnx", 1) == b"1"
        with pytest.raises(Invalid, match="larger than 0 bytes"):
            files.read("s3://lake/films/words.onnx", 0)
        assert files.fault(EncoderFile(uri="s3://lake/films/none.onnx")) == "s3://lake/films/none.onnx: encoder not found"
        assert files.fault(ImagesFolder(uri="s3://lake/films/none")) == "s3://lake/films/none: folder of images not found"
        for key in ("films/words.onnx", "films/posters/a.png", "films/posters/deep/b.png", "films/postersize.png"):
            (server.buckets / "lake" / key).unlink()

    @pytest.mark.parametrize(
        ("changes", "kind", "said"),
        [
            ({"AWS_SECRET_ACCESS_KEY": "wrong"}, Invalid, r"access denied \(SignatureDoesNotMatch\)"),
            ({"AWS_ACCESS_KEY_ID": "stranger"}, Invalid, "access denied "),
            ({"AWS_ACCESS_KEY_ID": ""}, Invalid, "access denied "),
            (
                {"AWS_ENDPOINT_URL": "http://127.0.0.1:1"},
                Unavailable,
                "the object store http://127.0.0.1:1 does not answer: ConnectionRefused",
            ),
            ({"AWS_ENDPOINT_URL": "127.0.0.1"}, Invalid, "AWS_ENDPOINT_URL: expected"),
        ],
    )
    def test_a_store_that_gives_nothing_is_told_from_data_that_isnt_there(
        self, changes: dict[str, str], kind: type[EyasError], said: str, server: Server
    ) -> None:
        with pytest.raises(kind, match=said) as caught:
            data_objects("s3://lake/films/a.csv", ROOTS, store(server, **changes))
        assert "wrong" not in str(caught.value)
        assert DataFiles(ROOTS, lambda: store(server, **changes)).fingerprint("s3://lake/films/a.csv") == {}

    def test_a_server_that_says_parts_in_a_header_alone_is_taken_up_where_it_was(self, server: Server, tmp_path: Path) -> None:
        (tmp_path / "x.csv").write_bytes(CONTENT)
        server.put(tmp_path / "x.csv", "lake", "films/x.csv")
        between = Between(server.port, breaks=2, after=40_000)
        try:
            objects = ObjectStore(server.environment | {"AWS_ENDPOINT_URL": between.endpoint}, tries=4)
            (entry,) = objects.list("s3://lake/films/x.csv")
            objects.fetch(entry.uri, tmp_path / "got", entry.tag)
        finally:
            between.close()
            (server.buckets / "lake/films/x.csv").unlink()
        assert (tmp_path / "got").read_bytes() == CONTENT
        assert between.breaks == 0
