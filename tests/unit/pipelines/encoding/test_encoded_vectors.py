"""Vectors that a run works out itself: what the encoder gives, once for each content, and one line for whatever is wrong."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import polars as pl
import pytest
from pydantic import ValidationError

from pipelines.data.sources import ReadableRoots
from pipelines.encoding import encoders
from pipelines.encoding.inputs import WordHasher
from pipelines.explain.fitting import fit_on_data, fit_on_nothing
from pipelines.features.graph import load_graph
from pipelines.stages import vectors
from shared.artifacts.store import FsspecArtifacts
from shared.contracts.encoding import EARLIER, ENCODED
from shared.contracts.plans import stage_parts
from shared.contracts.spec import RecommenderSpec
from shared.domain.errors import EyasError
from shared.stage_process import Outcome
from tests.support.encoded_items import BASE, COUNT, TITLES, column, encoding_spec, titled
from tests.support.etl_stage import Etl
from tests.support.onnx_encoders import WORDS, write_colours, write_words
from tests.unit.pipelines.recommender import ratings, spec

pytestmark = pytest.mark.requirement("G-30")


def handed_on(folder: Path, outcome: Outcome) -> dict[str, Any]:
    """As inputs of the next run."""
    return {EARLIER: {ENCODED: FsspecArtifacts(str(folder / "artifacts")).put(outcome.files[ENCODED])}}


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """How many rows the encoder was given each time."""
    found: list[int] = []
    usual = encoders._Onnx.encode

    def counted(self: Any, batch: Any) -> Any:
        found.append(len(batch))
        return usual(self, batch)

    monkeypatch.setattr(encoders._Onnx, "encode", counted)
    yield found


def test_vectors_are_what_the_encoder_gives_and_blank_texts_have_zeros(tmp_path: Path, etl: Etl, caplog: pytest.LogCaptureFixture) -> None:
    titled(tmp_path, [None, "", *TITLES[2:]])
    with caplog.at_level(logging.INFO):
        outcome = etl(encoding_spec(tmp_path))
    found = column(outcome)
    assert found[:2] == [None, None]
    session = onnxruntime.InferenceSession(str(tmp_path / "words.onnx"))
    reader = WordHasher(encoders.EncoderInput("words", "int64", (6,)), 64, WORDS)
    words = np.stack([reader.array(title.encode()) for title in TITLES[2:]])
    np.testing.assert_allclose(np.array(found[2:]), session.run(None, {"words": words})[0], rtol=1e-6)
    made = pl.read_parquet(outcome.files["items.features.parquet"])
    (name,) = [one for one in made.columns if one.endswith("movieId_vector")]
    rows = np.array(made[name].to_list())
    assert (rows[:2] == 0).all()
    np.testing.assert_allclose(np.linalg.norm(rows[2:], axis=1), 1, rtol=1e-5)
    assert outcome.facts["encoded"] == {"movieId_vector": {"encoded": 18, "known": 0, "without": 2}}
    assert "vectors: encoded feature=movieId_vector encoded=18 reused=0 missing=2" in caplog.text
    assert "vectors: row left out feature=movieId_vector reason=1: no value" in caplog.text


def test_what_an_earlier_run_has_encoded_is_not_encoded_again(tmp_path: Path, etl: Etl, calls: list[int]) -> None:
    titled(tmp_path)
    first = etl(encoding_spec(tmp_path))
    assert sum(calls) == COUNT
    calls.clear()
    again = etl(encoding_spec(tmp_path), inputs=handed_on(tmp_path, first))
    assert not calls
    assert again.facts["encoded"] == {"movieId_vector": {"encoded": 0, "known": COUNT, "without": 0}}
    assert {name: path.read_bytes() for name, path in again.files.items() if name.endswith(".parquet")} == {
        name: path.read_bytes() for name, path in first.files.items() if name.endswith(".parquet")
    }
    assert again.facts["snapshot"] == first.facts["snapshot"]


def test_new_and_changed_rows_alone_are_encoded_and_rows_that_moved_are_not(tmp_path: Path, etl: Etl, calls: list[int]) -> None:
    titled(tmp_path)
    first = etl(encoding_spec(tmp_path))
    calls.clear()
    titled(tmp_path, [*reversed(TITLES[1:]), "Another one"])
    second = etl(encoding_spec(tmp_path, {"as": "plot"}, batch=2), inputs=handed_on(tmp_path, first))
    assert calls == [1]
    assert column(second, "plot")[:-1] == column(first)[:0:-1]
    assert second.facts["snapshot"] != first.facts["snapshot"]
    assert len(pl.read_parquet(second.files[ENCODED])) == COUNT, "what isn't used any more isn't kept"


def test_another_encoder_or_another_option_makes_other_vectors(
    subtests: pytest.Subtests, tmp_path: Path, etl: Etl, calls: list[int]
) -> None:
    titled(tmp_path)
    for seed, words in ((2, WORDS), (1, WORDS - 1)):
        with subtests.test(seed=seed, words=words):
            write_words(tmp_path / "words.onnx")
            first = etl(encoding_spec(tmp_path))
            calls.clear()
            write_words(tmp_path / "words.onnx", seed=seed)
            second = etl(encoding_spec(tmp_path, words=words), inputs=handed_on(tmp_path, first))
            assert sum(calls) == COUNT
            assert column(second) != column(first)


def test_equal_contents_are_encoded_once(tmp_path: Path, etl: Etl, calls: list[int]) -> None:
    titled(tmp_path, ["One", "Two"] * (COUNT // 2))
    features = [*BASE, *(encoding_spec(tmp_path, {"as": name}).document()["features"][-1] for name in "ab")]
    outcome = etl(spec(tmp_path, features=features))
    assert sum(calls) == 2
    assert column(outcome, "a") == column(outcome, "b")
    assert outcome.facts["encoded"]["b"] == {"encoded": 0, "known": COUNT, "without": 0}


def test_vectors_of_another_release_are_encoded_anew(tmp_path: Path, etl: Etl, calls: list[int]) -> None:
    titled(tmp_path)
    pl.DataFrame({"mark": [1]}).write_parquet(tmp_path / "old.parquet")
    etl(encoding_spec(tmp_path), inputs={EARLIER: {ENCODED: FsspecArtifacts(str(tmp_path / "artifacts")).put(tmp_path / "old.parquet")}})
    assert sum(calls) == COUNT


def test_users_have_vectors_of_their_table(tmp_path: Path, etl: Etl) -> None:
    titled(tmp_path)
    pl.DataFrame({"person": range(1, 30), "about": [f"likes {n % 3}" for n in range(29)]}).write_parquet(tmp_path / "users.parquet")
    data = spec(tmp_path).document()["data"] | {"users": {"uri": str(tmp_path / "users.parquet"), "key": "person"}}
    encode = {"column": "about", "encoder": "words.onnx", "words": WORDS}
    outcome = etl(spec(tmp_path, data=data, features=[*BASE, {"vector": {"of": "userId", "width": 4, "encode": encode}}]))
    assert outcome.facts["encoded"] == {"userId_vector": {"encoded": 3, "known": 26, "without": 0}}
    assert column(outcome, "userId_vector", "users")[0] == column(outcome, "userId_vector", "users")[3] is not None


def test_a_warm_run_encodes_what_is_new(tmp_path: Path, etl: Etl, calls: list[int]) -> None:
    titled(tmp_path)
    first = etl(encoding_spec(tmp_path))
    calls.clear()
    store = FsspecArtifacts(str(tmp_path / "artifacts"))
    ratings(900, seed=5).rename({"userId": "user", "movieId": "item", "rating": "value", "at": "time"}).write_csv(tmp_path / "events.csv")
    inputs = {
        "events": {"events.csv": store.put(tmp_path / "events.csv")},
        "parent": {name: store.put(path) for name, path in first.files.items()},
    }
    titled(tmp_path, [*TITLES[1:], "A new one"])
    warm = etl(encoding_spec(tmp_path), mode="warm", inputs=inputs | handed_on(tmp_path, first))
    assert sum(calls) == 1
    assert column(warm)[:-1] == column(first)[1:]


def test_how_far_it_is_stands_in_the_log(
    tmp_path: Path, etl: Etl, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vectors, "_EVERY", -1)
    monkeypatch.setattr("pipelines.encoding.cache._STRETCH", 8)
    titled(tmp_path)
    with caplog.at_level(logging.INFO):
        etl(encoding_spec(tmp_path))
    messages = [record.message for record in caplog.records if record.message.startswith("vectors: encoding ")]
    assert messages == [f"vectors: encoding feature=movieId_vector done={done} of=20" for done in range(20)]


WRONG: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    ({}, {"encoder": "none.onnx"}, r"none\.onnx: encoder not found"),
    ({}, {"encoder": "broken.onnx"}, r"broken\.onnx: cannot be loaded as ONNX"),
    ({}, {"encoder": "apart.onnx"}, r"apart\.onnx: cannot be loaded as ONNX"),
    ({}, {"encoder": "/etc/none.onnx"}, "not under an allowed data root"),
    ({}, {"encoder": "s3://other/words.onnx"}, "not under an allowed data root"),
    ({}, {"column": "plot"}, "column 'plot' is missing; columns: movieId"),
    ({}, {"column": "year"}, "column 'year' is Int64; image file names and texts must be text"),
    ({"width": 5}, {}, "encoder returns vectors of length 4, but the spec says 5"),
    ({}, {"images": "posters"}, "takes words, not images; remove 'images'"),
    ({}, {"encoder": "colours.onnx"}, "images: the encoder takes images; set their folder"),
    ({}, {"encoder": "colours.onnx", "images": "none"}, "none: folder of images not found"),
    ({}, {"encoder": "colours.onnx", "images": "/etc"}, "not under an allowed data root"),
]


def test_what_is_wrong_is_one_line_of_etl_and_of_explain(subtests: pytest.Subtests, tmp_path: Path, etl: Etl) -> None:
    titled(tmp_path)
    (tmp_path / "posters").mkdir()
    (tmp_path / "broken.onnx").write_bytes(b"no model")
    model = onnx.load(str(tmp_path / "words.onnx"))
    onnx.save(model, tmp_path / "apart.onnx", save_as_external_data=True, location="apart.data", size_threshold=0)
    write_colours(tmp_path / "colours.onnx")
    attempts: dict[str, Callable[[RecommenderSpec], Any]] = {
        "etl": etl,
        "explain without data": lambda one: explained(one, tmp_path, fit_on_nothing),
        "explain": lambda one: explained(one, tmp_path, _fitted),
    }
    for (entry, encode, said), (name, attempt) in product(WRONG, attempts.items()):
        with subtests.test(attempt=name, said=said):
            with pytest.raises(EyasError, match=said) as refused:
                attempt(encoding_spec(tmp_path, entry, **encode))
            assert str(refused.value).startswith("features: vector 'movieId_vector': encode: ") and "\n" not in str(refused.value)


def _fitted(spec: RecommenderSpec, reach: ReadableRoots) -> Any:
    return fit_on_data(spec, reach, 10**9)


def explained(one: RecommenderSpec, folder: Path, how: Any) -> Any:
    scratch = folder / f"explain-{len(list(folder.iterdir()))}"
    scratch.mkdir()
    return how(one, ReadableRoots((str(folder),), scratch))


def test_a_column_without_a_single_vector_is_refused(tmp_path: Path, etl: Etl) -> None:
    titled(tmp_path, [None] * COUNT)
    with pytest.raises(EyasError, match="no row has a vector: 1: no value"):
        etl(encoding_spec(tmp_path))


def test_an_environment_without_the_library_is_one_line(tmp_path: Path, etl: Etl, monkeypatch: pytest.MonkeyPatch) -> None:
    titled(tmp_path)
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(EyasError, match=r"words\.onnx: an \.onnx encoder: ONNX Runtime is not installed in this environment"):
        etl(encoding_spec(tmp_path))


def test_explain_says_the_features_that_etl_then_makes_and_encodes_a_few_rows_alone(tmp_path: Path, etl: Etl, calls: list[int]) -> None:
    titled(tmp_path)
    graphs = [explained(encoding_spec(tmp_path), tmp_path, how).graph for how in (_fitted, fit_on_nothing)]
    assert sum(calls) == 2 * 8
    outcome = etl(encoding_spec(tmp_path))
    assert graphs[0].describe() == load_graph(lambda name: outcome.files[name]).describe()
    assert [feature.name for feature in graphs[1].features] == [feature.name for feature in graphs[0].features]


def test_a_family_that_reads_keys_alone_encodes_nothing(tmp_path: Path, etl: Etl, calls: list[int]) -> None:
    titled(tmp_path)
    keys = {"model": {"family": "popularity"}, "gates": [{"parity": 1e-6}]}
    outcome = etl(RecommenderSpec.model_validate(encoding_spec(tmp_path).document() | keys))
    assert not calls and ENCODED not in outcome.files and "encoded" not in outcome.facts


SPECS: list[tuple[dict[str, Any], str]] = [
    ({"from": "posters.parquet"}, r"set either 'from' \(a file of vectors\) or 'encode'"),
    ({"encode": None}, r"set either 'from' \(a file of vectors\) or 'encode'"),
    ({"encode": {"column": "title", "encoder": "words.pkl"}}, "expected an .onnx or .keras file, got 'words.pkl'"),
    ({"encode": {"column": "title", "encoder": "*.onnx"}}, r"expected one path, without \*"),
    ({"encode": {"column": "title", "encoder": "words.onnx", "size": "big"}}, "expected HEIGHTxWIDTH such as 224x224, got 'big'"),
    ({"encode": {"column": "title", "encoder": "words.onnx", "with": "x"}}, "unknown field 'with'"),
    ({"of": "userId"}, "encode needs a table of users; set data.users"),
]


def test_a_spec_that_says_it_wrong_is_refused(subtests: pytest.Subtests, tmp_path: Path) -> None:
    for change, said in SPECS:
        with subtests.test(change=change):
            entry = encoding_spec(tmp_path).document()["features"][-1]["vector"]
            with pytest.raises(ValidationError, match=said):
                spec(tmp_path, features=[*BASE, {"vector": entry | change}])


def test_a_spec_without_it_is_what_it_was(tmp_path: Path) -> None:
    of = {"of": "movieId", "from": "posters.parquet", "width": 3}
    read = spec(tmp_path, features=[*BASE, {"vector": of}])
    assert read.document()["features"][-1] == {"vector": of | {"column": "vector", "as": None}}
    assert not [name for name in stage_parts(read, "etl") if "encode" in name]
    assert list(read.places())[-1] == "features: vector 'movieId_vector'"


def test_a_size_is_kept_as_it_is_written(tmp_path: Path) -> None:
    read = encoding_spec(tmp_path, size="224x192", images="posters")
    assert read.document()["features"][-1]["vector"]["encode"]["size"] == "224x192"
    assert RecommenderSpec.model_validate(read.document()) == read
    assert [(place.uri, place.contents) for name, place in read.places().items() if "encode" in name] == [
        ("words.onnx", "encoder"),
        ("posters", "images"),
    ]
