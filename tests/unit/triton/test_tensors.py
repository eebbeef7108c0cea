"""Columns as Triton takes them."""

from __future__ import annotations

import numpy as np
import pytest
from tritonclient.grpc import InferInput

from services.triton.tensors import dummy, tensors
from shared.domain.errors import Invalid
from shared.serving.signature import Input, Signature

SIGNATURE = Signature(
    user="user",
    item="item",
    inputs=(
        Input(name="user", dtype="int64", side="user"),
        Input(name="item", dtype="int64", side="item"),
        Input(name="price", dtype="float32", side="item"),
        Input(name="genres", dtype="string", width=2, side="item"),
    ),
)
GENRES = np.array([["Drama", ""], ["Science-fiction", "né"]])


def feed(genres: np.ndarray) -> dict[str, np.ndarray]:  # type: ignore[type-arg]
    return {"user": np.array([1, 1]), "item": np.array([10, 20]), "price": np.array([0.5, 1.5]), "genres": genres}


def test_texts_are_packed_as_tritons_own_client_packs_them(subtests: pytest.Subtests) -> None:
    for genres in (GENRES, GENRES.astype(object), GENRES[::-1][::-1], np.asfortranarray(GENRES)):
        with subtests.test(genres=genres):
            theirs = InferInput("genres", [2, 2], "BYTES")
            theirs.set_data_from_numpy(GENRES.astype(object))
            ours = tensors(SIGNATURE, feed(genres))[3]
            assert ours._get_content() == theirs._get_content()
            assert (ours.datatype(), ours.shape()) == ("BYTES", [2, 2])


def test_a_column_that_changed_in_place_is_packed_anew() -> None:
    genres = GENRES.copy()
    before = tensors(SIGNATURE, feed(genres))[3]._get_content()
    genres[0, 0] = "Comedy"
    assert tensors(SIGNATURE, feed(genres))[3]._get_content() != before


def test_numbers_take_the_width_that_the_model_declares() -> None:
    found = tensors(SIGNATURE, feed(GENRES))
    assert [one.datatype() for one in found] == ["INT64", "INT64", "FP32", "BYTES"]
    narrow = feed(GENRES) | {"user": np.array([1, 1], dtype=np.int32)}
    assert tensors(SIGNATURE, narrow)[0]._get_content() == found[0]._get_content()


def test_a_missing_input_is_named() -> None:
    columns = feed(GENRES)
    del columns["price"]
    with pytest.raises(Invalid, match="'price' is missing"):
        tensors(SIGNATURE, columns)


def test_a_wrong_shape_is_named() -> None:
    with pytest.raises(Invalid, match=r"'genres' has the shape \(2, 3\), expected \(rows, 2\)"):
        tensors(SIGNATURE, feed(np.full((2, 3), "")))


def test_rows_of_nothing_fit_every_signature() -> None:
    found = tensors(SIGNATURE, dummy(SIGNATURE, 2))
    assert [one.shape() for one in found] == [[2], [2], [2], [2, 2]]


def test_numbers_that_nobody_knows_go_as_they_are() -> None:
    signature = Signature(
        user="user", item="item", inputs=(*SIGNATURE.inputs[:2], Input(name="weights", dtype="float32", width=2, side="item"))
    )
    weights = np.array([[0.5, np.nan], [np.nan, np.nan]])
    found = tensors(signature, feed(GENRES) | {"weights": weights})[2]
    assert (found.datatype(), found.shape()) == ("FP32", [2, 2])
    assert found._get_content() == weights.astype(np.float32).tobytes()
    assert [one.shape() for one in tensors(signature, dummy(signature, 3))] == [[3], [3], [3, 2]]
