"""`eyas features encode` with an ONNX encoder of words: the encoder's vectors, what is left out, an interrupted run, and refusals.

Images and Keras encoders take TensorFlow: tests/training/frameworks/test_encoding_stage.py.
"""

from __future__ import annotations

import json
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import polars as pl
import pytest

from pipelines.data.sources import ReadableRoots
from pipelines.data.vectors import open_vectors, with_vectors
from pipelines.encoding import work
from pipelines.encoding.command import encode
from shared.contracts.features import VectorOf
from shared.domain.errors import EyasError, Invalid
from tests.support.onnx_encoders import WORDS, write_words

pytestmark = pytest.mark.requirement("G-30")
COUNT = 11


@pytest.fixture
def table(tmp_path: Path) -> Path:
    plots = [f"Film {number}, the film: {'é' * number}" for number in range(COUNT)]
    path = tmp_path / "items.parquet"
    pl.DataFrame({"movieId": range(100, 100 + COUNT), "plot": plots}).write_parquet(path)
    write_words(tmp_path / "words.onnx")
    return path


def asked(table: Path, **more: Any) -> dict[str, Any]:
    places = {"encoder": str(table.with_name("words.onnx")), "table": str(table), "out": str(table.with_name("vectors.parquet"))}
    return {**places, "key": "movieId", "column": "plot", "words": WORDS, **more}


def vectors(table: Path) -> pl.DataFrame:
    return pl.read_parquet(table.with_name("vectors.parquet")).sort("movieId")


def expected(table: Path) -> np.ndarray[Any, Any]:
    """By the hash as it is documented: lower case words, 0 for no word."""
    session = onnxruntime.InferenceSession(str(table.with_name("words.onnx")), providers=["CPUExecutionProvider"])
    rows = []
    for number in range(COUNT):
        words = [word.encode() for word in ("film", str(number), "the", "film", "é" * number) if word]
        rows.append(([zlib.crc32(word) % (WORDS - 1) + 1 for word in words] + [0] * 6)[:6])
    return np.asarray(session.run(None, {"words": np.array(rows, np.int64)})[0])


def test_vectors_are_those_of_the_encoder_and_the_operator_vector_takes_them(table: Path) -> None:
    told = encode(asked(table, batch=4))
    assert (told.rows, told.width, told.left_out, told.before) == (COUNT, 4, 0, 0)
    found = vectors(table)
    assert found.schema == {"movieId": pl.Int64(), "vector": pl.List(pl.Float32)}
    np.testing.assert_allclose(np.stack(found["vector"].to_list()), expected(table), rtol=1e-5)
    assert not list(table.parent.glob(".*"))
    of = VectorOf.model_validate({"of": "movieId", "from": str(table.with_name("vectors.parquet")), "width": 4})
    joined = with_vectors(pl.read_parquet(table), open_vectors(of, ReadableRoots((str(table.parent),), table.parent)), of)
    assert joined["movieId_vector"].to_list() == found["vector"].to_list()


def test_a_row_without_a_text_is_left_out_with_its_reason(table: Path) -> None:
    frame = pl.read_parquet(table)
    frame.with_columns(plot=pl.when(pl.col("movieId").is_in([103, 107])).then(None).otherwise("plot")).write_parquet(table)
    told = encode(asked(table))
    assert (told.rows, told.left_out) == (COUNT - 2, 2)
    assert "103: no value" in " ".join(told.reasons)
    assert vectors(table)["movieId"].to_list() == [100, 101, 102, 104, 105, 106, 108, 109, 110]


def test_an_interrupted_run_goes_on_and_gives_the_same(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(work, "STRETCH", 4)
    encode(asked(table))
    out = table.with_name("vectors.parquet")
    whole = out.read_bytes()
    out.unlink()
    stretches: list[int] = []
    encoded = work.TableEncoding._encoded

    def dying(self: Any, rows: pl.DataFrame, left: Any) -> Any:
        stretches.append(len(rows))
        if len(stretches) == 3:
            raise KeyboardInterrupt
        return encoded(self, rows, left)

    with monkeypatch.context() as patched:
        patched.setattr(work.TableEncoding, "_encoded", dying)
        with pytest.raises(KeyboardInterrupt):
            encode(asked(table))
    assert not out.exists()
    with pytest.raises(Invalid, match="another encoder or other options"):
        encode(asked(table, words=WORDS - 1))
    told = encode(asked(table))
    assert (told.before, told.rows) == (8, COUNT)
    assert out.read_bytes() == whole


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"encoder": "none.onnx"}, "none.onnx: encoder not found"),
    ({"encoder": "items.parquet"}, "items.parquet: expected an .onnx or .keras file"),
    ({"encoder": "broken.onnx"}, "cannot be loaded as ONNX"),
    ({"column": "none"}, "column 'none' is missing"),
    ({"column": "movieId"}, "must be text"),
    ({"column": "empty"}, "no row has a vector"),
    ({"out": "none/vectors.parquet"}, "expected a .parquet file in an existing folder"),
]


def test_what_is_wrong_is_one_line(subtests: pytest.Subtests, table: Path) -> None:
    pl.read_parquet(table).with_columns(empty=pl.lit(None, pl.String)).write_parquet(table)
    table.with_name("broken.onnx").write_bytes(b"no model")
    for change, said in WRONG:
        paths = {name: str(table.parent / value) for name, value in change.items() if name in ("encoder", "out")}
        with subtests.test(change=change):
            with pytest.raises(EyasError, match=said) as refused:
                encode(json.loads(json.dumps(asked(table) | change | paths)))
            assert "\n" not in str(refused.value)
