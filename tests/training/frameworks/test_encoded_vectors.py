"""Vectors that ETL encodes by TensorFlow: of images in a folder or in S3, and by a Keras encoder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from pipelines.data.sources import ReadableRoots
from pipelines.encoding import encoders
from pipelines.encoding.inputs import WordHasher
from pipelines.explain.fitting import fit_on_data, fit_on_nothing
from shared.contracts.spec import RecommenderSpec
from shared.domain.errors import EyasError
from tests.servers.s3_server import S3Server
from tests.support.encoded_items import COUNT, TITLES, column, encoding_spec, titled
from tests.support.etl_stage import etl_stage
from tests.support.onnx_encoders import WORDS, write_colours
from tests.unit.pipelines.recommender import films, ratings, write

pytestmark = pytest.mark.requirement("G-30")


def test_images_are_read_out_of_a_folder_or_an_object_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    etl = etl_stage(tmp_path)
    (tmp_path / "posters").mkdir()
    random, means = np.random.default_rng(3), []
    for number in range(COUNT):
        image = random.integers(0, 256, (4, 4, 3), dtype=np.uint8)
        means.append(image.mean(axis=(0, 1)) / 255)
        np.save(tmp_path / "posters" / f"{number}.npy", image)
    (tmp_path / "posters" / "7.npy").unlink()
    names = [f"{number}.npy" for number in range(COUNT)]
    names[8] = "../films.parquet"
    write(tmp_path, ratings(600), films(COUNT).with_columns(poster=pl.Series(names)))
    write_colours(tmp_path / "colours.onnx")
    server = S3Server(tmp_path / "s3")
    try:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        server.put(tmp_path / "colours.onnx", "lake", "encoders/colours.onnx")
        for path in (tmp_path / "posters").iterdir():
            server.put(path, "lake", f"posters/{path.name}")
        for places in (
            {"encoder": "colours.onnx", "images": "posters"},
            {"encoder": "s3://lake/encoders/colours.onnx", "images": "s3://lake/posters/"},
        ):
            outcome = etl(encoding_spec(tmp_path, {"width": 3}, column="poster", **places), (str(tmp_path), "s3://lake"))
            found = column(outcome)
            assert (found[7], found[8]) == (None, None)
            assert outcome.facts["encoded"]["movieId_vector"] == {"encoded": COUNT - 2, "known": 0, "without": 2}
            kept = [number for number in range(COUNT) if number not in (7, 8)]
            np.testing.assert_allclose([found[n] for n in kept], [means[n] for n in kept], rtol=1e-5)
    finally:
        server.close()


def test_a_keras_encoder_is_taken_as_well(tmp_path: Path) -> None:
    import keras

    etl = etl_stage(tmp_path)
    titled(tmp_path)
    words = keras.Input((5,), dtype="int64")
    keras.Model(words, keras.ops.cast(words, "float32")).save(tmp_path / "words.keras")
    outcome = etl(encoding_spec(tmp_path, {"width": 5}, encoder="words.keras"))
    assert column(outcome)[4] == WordHasher(encoders.EncoderInput("words", "int64", (5,)), 64, WORDS).array(TITLES[4].encode()).tolist()
    code = keras.Sequential([keras.Input((5,), dtype="int64"), keras.layers.Lambda(lambda x: x)])
    code.save(tmp_path / "code.keras")
    with pytest.raises(EyasError, match=r"code\.keras: cannot be loaded as a Keras model without custom code"):
        etl(encoding_spec(tmp_path, {"width": 5}, encoder="code.keras"))


def test_a_size_that_the_encoder_does_not_take_is_refused(tmp_path: Path) -> None:
    titled(tmp_path)
    (tmp_path / "posters").mkdir()
    write_colours(tmp_path / "colours.onnx")
    wrong = encoding_spec(tmp_path, encoder="colours.onnx", images="posters", size="5x5")
    reach = ReadableRoots((str(tmp_path),), tmp_path / "explained")
    attempts: list[Callable[[RecommenderSpec], Any]] = [
        etl_stage(tmp_path),
        lambda one: fit_on_nothing(one, reach),
        lambda one: fit_on_data(one, reach, 10**9),
    ]
    for attempt in attempts:
        with pytest.raises(EyasError, match=r"^features: vector 'movieId_vector': encode: .*size: the encoder takes 4x4, not 5x5$"):
            attempt(wrong)
