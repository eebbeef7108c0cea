"""Vectors of images and texts are what the encoder gives, whole or gone on with; one bad file stops nothing."""

from __future__ import annotations

import json
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import polars as pl
import pytest
from onnx import TensorProto, helper

from pipelines.data.sources import ReadableRoots
from pipelines.data.vectors import open_vectors, with_vectors
from pipelines.encoding import work
from pipelines.encoding.command import encode
from shared.contracts.features import VectorOf
from shared.domain.errors import EyasError, Invalid

tf = pytest.importorskip("tensorflow")
keras = pytest.importorskip("keras")
pytestmark = pytest.mark.requirement("G-30")

RANDOM = np.random.default_rng(2)
COUNT = 11


@pytest.fixture
def table(tmp_path: Path) -> Path:
    folder = tmp_path / "posters"
    folder.mkdir()
    names = []
    for number in range(COUNT):
        image = RANDOM.integers(0, 256, (8, 8, 3), dtype=np.uint8)
        name = f"posters/{number} [x].{'npy' if number % 3 == 1 else 'png'}"
        if name.endswith("npy"):
            np.save(tmp_path / name, image)
        else:
            (tmp_path / name).write_bytes(tf.io.encode_png(image).numpy())
        names.append(name)
    plots = [f"Film {number}, the film: {'é' * number}" for number in range(COUNT)]
    path = tmp_path / "items.parquet"
    pl.DataFrame({"movieId": range(100, 100 + COUNT), "poster": names, "plot": plots}).write_parquet(path)
    return path


def _mean(folder: Path, shape: list[Any], axes: list[int], name: str = "mean.onnx", dtype: int = TensorProto.FLOAT) -> Path:
    """The mean colour as an encoder."""
    nodes = [
        helper.make_node("Cast", ["in"], ["float"], to=TensorProto.FLOAT),
        helper.make_node("ReduceMean", ["float"], ["out"], axes=axes, keepdims=0),
    ]
    taken = helper.make_tensor_value_info("in", dtype, shape)
    given = helper.make_tensor_value_info("out", TensorProto.FLOAT, ["N", 3])
    model = helper.make_model(helper.make_graph(nodes, "mean", [taken], [given]), opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, folder / name)
    return folder / name


def _ask(table: Path, encoder: Path, column: str = "poster", **more: Any) -> dict[str, Any]:
    out = str(table.with_name("vectors.parquet"))
    return {"encoder": str(encoder), "table": str(table), "key": "movieId", "column": column, "out": out, **more}


def _images(table: Path) -> np.ndarray:
    found = []
    for name in pl.read_parquet(table)["poster"]:
        path = table.parent / name
        found.append(np.load(path) if name.endswith("npy") else tf.io.decode_png(path.read_bytes()).numpy())
    return np.stack(found).astype(np.float32)


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize(("pixels", "scale", "away"), [("unit", 255, 0), ("signed", 127.5, 1), ("bytes", 1, 0)])
def test_images_reach_an_onnx_encoder_as_it_takes_them(first: bool, pixels: str, scale: float, away: float, table: Path) -> None:
    encoder = _mean(table.parent, ["N", 3, 8, 8], [2, 3]) if first else _mean(table.parent, ["N", 8, 8, 3], [1, 2])
    told = encode(_ask(table, encoder, pixels=pixels, batch=4))
    assert (told.rows, told.width, told.left_out, told.before) == (COUNT, 3, 0, 0)
    found = pl.read_parquet(table.with_name("vectors.parquet")).sort("movieId")
    assert found.schema == {"movieId": pl.Int64(), "vector": pl.List(pl.Float32)}
    np.testing.assert_allclose(np.stack(found["vector"].to_list()), _images(table).mean(axis=(1, 2)) / scale - away, rtol=1e-4, atol=1e-5)
    assert not list(table.parent.glob(".*"))


def test_bytes_reach_an_encoder_of_bytes_and_any_size_must_be_said(table: Path) -> None:
    encoder = _mean(table.parent, ["N", "H", "W", 3], [1, 2], dtype=TensorProto.UINT8)
    with pytest.raises(Invalid, match="any size; set the size to scale to"):
        encode(_ask(table, encoder))
    assert encode(_ask(table, encoder, size=[4, 4])).rows == COUNT


def test_the_vectors_are_what_the_operator_vector_takes(table: Path) -> None:
    encode(_ask(table, _mean(table.parent, ["N", 8, 8, 3], [1, 2])))
    of = VectorOf.model_validate({"of": "movieId", "from": str(table.with_name("vectors.parquet")), "width": 3})
    joined = with_vectors(pl.read_parquet(table), open_vectors(of, ReadableRoots((str(table.parent),), table.parent)), of)
    assert joined["movieId_vector"].null_count() == 0


def test_a_keras_encoder_gives_what_the_model_gives(table: Path) -> None:
    model = keras.Sequential([keras.Input((8, 8, 3)), keras.layers.Flatten(), keras.layers.Dense(5)])
    path = table.with_name("encoder.keras")
    model.save(path)
    assert encode(_ask(table, path)).width == 5
    found = np.stack(pl.read_parquet(table.with_name("vectors.parquet")).sort("movieId")["vector"].to_list())
    np.testing.assert_allclose(found, model.predict(_images(table) / 255, verbose=0), rtol=1e-3, atol=1e-4)


def test_a_keras_encoder_with_code_in_it_is_refused(table: Path) -> None:
    model = keras.Sequential([keras.Input((8, 8, 3)), keras.layers.Lambda(lambda x: x), keras.layers.Flatten()])
    path = table.with_name("encoder.keras")
    model.save(path)
    with pytest.raises(EyasError, match="without custom code"):
        encode(_ask(table, path))


def test_texts_reach_an_encoder_of_words_by_a_fixed_hash(table: Path) -> None:
    words = keras.Input((6,), dtype="int64")
    model = keras.Model(words, keras.ops.cast(words, "float32"))
    path = table.with_name("words.keras")
    model.save(path)
    told = encode(_ask(table, path, column="plot", words=50))
    found = np.stack(pl.read_parquet(table.with_name("vectors.parquet")).sort("movieId")["vector"].to_list())
    assert told.width == 6
    assert (found[:, 0] == found[:, 3]).all()  # the same word
    hashes = [zlib.crc32(word) % 49 + 1 for word in (b"film", b"0", b"the", b"film")]
    assert found[0].tolist() == [*hashes, 0, 0] and hashes[0] == 25 and found.max() < 50


def test_what_cannot_be_read_is_left_out_with_its_reason_and_the_rest_is_encoded(table: Path) -> None:
    frame = pl.read_parquet(table)
    names = frame["poster"].to_list()
    (table.parent / names[0]).write_bytes((table.parent / names[0]).read_bytes()[:60])
    (table.parent / names[2]).unlink()
    (table.parent / names[3]).write_text("a page")
    secret = table.parent.parent / "secret.png"
    secret.write_bytes((table.parent / names[5]).read_bytes())
    names[5], names[6], names[8] = "../secret.png", None, str(secret)
    frame.with_columns(poster=pl.Series(names)).write_parquet(table)
    told = encode(_ask(table, _mean(table.parent, ["N", 8, 8, 3], [1, 2])))
    assert (told.rows, told.left_out) == (COUNT - 6, 6)
    reasons = " ".join(told.reasons)
    for reason in ("100: ", "damaged", "102: ", "No such file", "103: neither", "105: ", "outside ", "106: no value"):
        assert reason in reasons
    assert pl.read_parquet(table.with_name("vectors.parquet"))["movieId"].sort().to_list() == [101, 104, 107, 109, 110]


def test_an_interrupted_try_is_gone_on_with_and_gives_the_same(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(work, "STRETCH", 4)
    encoder = _mean(table.parent, ["N", 8, 8, 3], [1, 2])
    encode(_ask(table, encoder))
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
            encode(_ask(table, encoder))
    assert not out.exists()
    with pytest.raises(Invalid, match="another encoder or other options"):
        encode(_ask(table, encoder, pixels="signed"))
    told = encode(_ask(table, encoder))
    assert (told.before, told.rows) == (8, COUNT)
    assert out.read_bytes() == whole


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"encoder": "none.onnx"}, "none.onnx: encoder not found"),
        ({"encoder": "items.parquet"}, "items.parquet: expected an .onnx or .keras file"),
        ({"column": "none"}, "column 'none' is missing"),
        ({"column": "movieId"}, "must be text"),
        ({"column": "plot"}, "no row has a vector"),
        ({"out": "none/vectors.parquet"}, "expected a .parquet file in an existing folder"),
        ({"size": [9, 9]}, "the encoder takes 8x8, not 9x9"),
    ],
)
def test_what_is_wrong_is_one_line(change: dict[str, Any], said: str, table: Path) -> None:
    request = _ask(table, _mean(table.parent, ["N", 8, 8, 3], [1, 2]))
    paths = {name: str(table.parent / value) for name, value in change.items() if name in ("encoder", "out")}
    with pytest.raises(EyasError, match=said) as refused:
        encode(json.loads(json.dumps(request | change | paths)))
    assert "\n" not in str(refused.value)


def test_an_encoder_that_is_damaged_or_takes_something_else_is_refused(table: Path) -> None:
    broken = table.with_name("broken.onnx")
    broken.write_bytes(b"no model")
    with pytest.raises(EyasError, match="cannot be loaded as ONNX"):
        encode(_ask(table, broken))
    with pytest.raises(EyasError, match="expected images"):
        encode(_ask(table, _mean(table.parent, ["N", 4, 8, 8], [2, 3])))
