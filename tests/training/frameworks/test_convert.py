"""Converted preprocessing gives what the Keras layer or the TensorFlow column gave, up to how codes are numbered: in polars and in ONNX.

Null is 0 and unknown is 1 here. A layer without a mask counts from unknown = 0, so its codes are one less; with a mask they are equal.
"""

from __future__ import annotations

import functools
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.features.convert import Converted, from_document, from_feature_columns, from_keras
from pipelines.features.raw import item_columns, signature
from shared.domain.errors import Invalid
from tests.support.feature_graphs import fitted
from tests.unit.pipelines.recommender import spec

keras = pytest.importorskip("keras")
tf = pytest.importorskip("tensorflow")
layers = keras.layers
pytestmark = pytest.mark.requirement("L-05")

ROWS = 40
RANDOM = np.random.default_rng(5)
ITEMS = pl.DataFrame(
    {
        "movieId": range(1, ROWS + 1),
        # By falling frequency, so that no order is open.
        "city": (["Ulm"] * 12 + ["Lyon"] * 9 + ["Øre"] * 6 + ["東京"] * 4 + ["a b"] * 2 + [""] * 3 + ["rare"] + [None] * 3),
        "kind": [3] * 14 + [-7] * 10 + [2**40] * 6 + [0] * 4 + [11] * 3 + [12] * 2 + [13],
        "day": RANDOM.integers(0, 7, ROWS),
        "price": np.concatenate([RANDOM.normal(20, 9, ROWS - 4), [10.0, 20.0, -5.0, 1e6]]),
        "tags": [["a"], ["b", "a"], [], ["z", "a"]] * 10,
    }
)
SEEN = pl.LazyFrame({"user": [7], "item": [1], "time": [0.0], "label": [1]})


def _made(found: Converted, folder: Path) -> dict[str, np.ndarray]:
    """The features of all items, by polars; ONNX must agree."""
    entries = [{"categorify": ["userId", "movieId"]}, *map(dict, found.features)]
    ready = fitted(spec(folder, features=entries), SEEN, ITEMS)
    graph = ready.graph
    session = onnxruntime.InferenceSession(graph.lower().SerializeToString(), providers=["CPUExecutionProvider"])
    raw = item_columns(ready.items, signature(graph)) | {"userId": np.full(ROWS, 7)}
    served = dict(zip([one.name for one in graph.features], session.run([one.output for one in graph.features], raw), strict=True))
    ours = graph.transform(ready.items.lazy(), "item").collect()
    for one in graph.side("item"):
        np.testing.assert_allclose(ours[one.name].to_numpy(), served[one.name], rtol=1e-6)
    return {one.name: ours[one.name].to_numpy() for one in graph.side("item")}


def _keras(layer: Any, column: str) -> np.ndarray:
    return np.asarray(layer(_tensor(column)))


def _tensor(column: str) -> Any:
    values = ITEMS[column].fill_null("") if column == "city" else ITEMS[column]
    return tf.constant(values.to_list())


def _there(column: str) -> np.ndarray:
    return (ITEMS[column].is_not_null() & (ITEMS[column] != "")).to_numpy() if column == "city" else np.ones(ROWS, bool)


WORDS = ["Lyon", "Øre", "東京"]


def test_a_string_lookup_with_a_mask_has_equal_codes(tmp_path: Path) -> None:
    layer = layers.StringLookup(vocabulary=WORDS, mask_token="")
    assert _made(from_keras({"city": layer}), tmp_path)["city"].tolist() == _keras(layer, "city").tolist()


def test_lookups_without_a_mask_have_codes_that_are_one_less(tmp_path: Path) -> None:
    city, kind = layers.StringLookup(vocabulary=WORDS), layers.IntegerLookup(vocabulary=[2**40, 3, 12])
    made = _made(from_keras({"city": city, "kind": kind}), tmp_path)
    there = _there("city")
    assert (made["city"][there] == _keras(city, "city")[there] + 1).all()
    assert (made["city"][~there] == 0).all()
    assert (made["kind"] == _keras(kind, "kind") + 1).all()


def test_an_adapted_lookup_keeps_the_words_that_it_has_learned(tmp_path: Path) -> None:
    city, kind = layers.StringLookup(max_tokens=4), layers.IntegerLookup(max_tokens=3)
    city.adapt(np.array([one for one in ITEMS["city"] if one]))
    kind.adapt(ITEMS["kind"].to_numpy())
    made = _made(from_keras({"city": city, "kind": kind}), tmp_path)
    there = _there("city")
    assert set(_keras(city, "city")[there]) == {0, 1, 2, 3}
    assert (made["city"][there] == _keras(city, "city")[there] + 1).all()
    assert (made["kind"] == _keras(kind, "kind") + 1).all()


def test_a_lookup_whose_words_are_not_in_the_file_counts_as_many_and_says_so(tmp_path: Path) -> None:
    city = layers.StringLookup(max_tokens=4)
    document = json.loads(json.dumps({"city": keras.saving.serialize_keras_object(city)}))
    found = from_document(document)
    assert [dict(one) for one in found.features] == [{"categorify": "city", "max_size": 3}]
    assert any("counted in the data" in note for note in found.notes)
    city.adapt(np.array([one for one in ITEMS["city"] if one]))
    there = _there("city")
    # The data is the same: so are the words, and their order.
    assert (_made(found, tmp_path)["city"][there] == _keras(city, "city")[there] + 1).all()


def test_unknown_integers_share_as_many_buckets(tmp_path: Path) -> None:
    layer = layers.IntegerLookup(vocabulary=[3, -7], num_oov_indices=4)
    ours, theirs = _made(from_keras({"kind": layer}), tmp_path)["kind"], _keras(layer, "kind")
    known = ITEMS["kind"].is_in([3, -7]).to_numpy()
    assert (ours[known] == theirs[known] - 4 + 2).all()
    assert set(theirs[~known]) <= set(range(4)) and set(ours[~known]) <= set(range(4, 8))


def test_hashing_of_integers_has_as_many_buckets_and_equal_values_meet(tmp_path: Path) -> None:
    layer = layers.Hashing(5)
    found = from_keras({"kind": layer})
    ours = _made(found, tmp_path)["kind"]
    assert set(_keras(layer, "kind")) <= set(range(5)) and set(ours) <= set(range(2, 7))
    assert all(len(set(ours[(ITEMS["kind"] == value).to_numpy()])) == 1 for value in ITEMS["kind"].unique())
    assert any("the hash function differs" in note for note in found.notes)


@pytest.mark.parametrize("mode", ["one_hot", "multi_hot"])
def test_zeros_and_ones_of_words_are_equal_behind_the_place_of_null(mode: str, tmp_path: Path) -> None:
    if mode == "one_hot":
        layer = layers.StringLookup(vocabulary=WORDS, output_mode="one_hot")
        theirs, there = _keras(layer, "city"), _there("city")
        ours = _made(from_keras({"city": layer}), tmp_path)["city_hot"]
        np.testing.assert_array_equal(ours[there, 1:], theirs[there])
        assert not ours[~there].any()
    else:
        layer = layers.StringLookup(vocabulary=["b", "a"], output_mode="multi_hot", mask_token="")
        padded = [[*tags, "", ""][:2] for tags in ITEMS["tags"].to_list()]
        ours = _made(from_keras({"tags": layer}), tmp_path)["tags_hot"]
        np.testing.assert_array_equal(ours[:, 1:], np.asarray(layer(tf.constant(padded))))


def test_numbers_that_are_codes_already_have_equal_zeros_and_ones(tmp_path: Path) -> None:
    layer = layers.CategoryEncoding(7, output_mode="one_hot")
    ours = _made(from_keras({"day": layer}), tmp_path)["day_hot"]
    np.testing.assert_array_equal(ours[:, 2:], _keras(layer, "day"))
    chain = [layers.IntegerLookup(vocabulary=[3, -7]), layers.CategoryEncoding(3, output_mode="one_hot")]
    theirs = np.asarray(chain[1](chain[0](_tensor("kind"))))
    np.testing.assert_array_equal(_made(from_keras({"kind": chain}), tmp_path)["kind_hot"][:, 1:], theirs)


def test_a_normalised_number_is_equal(tmp_path: Path) -> None:
    layer = layers.Normalization(axis=None)
    layer.adapt(ITEMS["price"].to_numpy())
    ours = _made(from_keras({"price": layer}), tmp_path)["price"]
    np.testing.assert_allclose(ours, _keras(layer, "price"), rtol=1e-4, atol=1e-6)  # Keras sums float32


def test_buckets_are_one_more_and_bounds_belong_to_the_upper_one(tmp_path: Path) -> None:
    layer, hot = layers.Discretization([10.0, 20.0, 30.5]), layers.Discretization([10.0, 20.0, 30.5], output_mode="one_hot")
    assert (_made(from_keras({"price": layer}), tmp_path)["price_bucket"] == _keras(layer, "price") + 1).all()
    np.testing.assert_array_equal(_made(from_keras({"price": hot}), tmp_path)["price_bucket_hot"][:, 1:], _keras(hot, "price"))


def test_fitted_buckets_are_as_many(tmp_path: Path) -> None:
    layer = layers.Discretization(num_bins=4)
    assert set(_made(from_keras({"price": layer}), tmp_path)["price_bucket"]) == {1, 2, 3, 4}
    layer.adapt(ITEMS["price"].to_numpy())  # now it knows its bounds
    assert (_made(from_keras({"price": layer}), tmp_path)["price_bucket"] == _keras(layer, "price") + 1).all()


def test_a_cross_has_as_many_buckets_and_equal_pairs_meet(tmp_path: Path) -> None:
    layer = layers.HashedCrossing(9)
    ours = _made(from_keras({("kind", "day"): layer}), tmp_path)["kind_x_day"]
    theirs = np.asarray(layer((_tensor("kind"), _tensor("day"))))
    assert set(theirs.ravel()) <= set(range(9)) and set(ours) <= set(range(2, 11))
    by_pair: dict[tuple[int, int], set[int]] = {}
    for pair, code in zip(zip(ITEMS["kind"], ITEMS["day"], strict=True), ours, strict=True):
        by_pair.setdefault(pair, set()).add(int(code))
    assert all(len(codes) == 1 for codes in by_pair.values()) and len({code for codes in by_pair.values() for code in codes}) > 3


def _model() -> Any:
    price, city = keras.Input((1,), name="price"), keras.Input((1,), dtype="string", name="city")
    kind, day = keras.Input((1,), dtype="int64", name="kind"), keras.Input((1,), dtype="int64", name="day")
    tags = keras.Input((3,), dtype="string", name="tags")
    buckets, looked = layers.Discretization([10.0, 20.0])(price), layers.StringLookup(vocabulary=WORDS)(city)
    parts = [
        layers.Flatten()(layers.Embedding(5, 4)(looked)),
        layers.StringLookup(vocabulary=["a", "b"], output_mode="multi_hot", mask_token="")(tags),
        layers.CategoryEncoding(3, output_mode="one_hot")(buckets),
        layers.HashedCrossing(50, output_mode="one_hot")([kind, day]),
        price,
    ]
    return keras.Model([price, city, kind, day, tags], layers.Dense(1)(layers.Concatenate()(parts)))


def test_a_model_says_which_column_each_layer_takes(tmp_path: Path) -> None:
    found = from_keras(_model())
    assert [dict(one) for one in found.features] == [
        {"categorify": "city", "values": WORDS},
        {"multi_hot": "tags", "max_length": 3, "values": ["a", "b"]},
        {"categorify": "kind"},
        {"categorify": "day"},
        {"bucketise": "price", "at": [10.0, 20.0]},
        {"fill": "price", "with": 0.0},
        {"cross": ["kind", "day"], "buckets": 50},
        {"one_hot": "tags"},
        {"one_hot": "price_bucket"},
        {"one_hot": "kind_x_day"},
    ]
    assert {"city", "tags_hot", "price", "price_bucket_hot", "kind_x_day_hot"} <= set(_made(found, tmp_path))
    assert from_document(json.loads(_model().to_json())).features == found.features


def test_a_feature_space_is_converted_before_and_after_it_was_adapted(tmp_path: Path) -> None:
    space = keras.utils.FeatureSpace
    made = space(
        {
            "price": space.float_normalized(),
            "city": space.string_categorical(num_oov_indices=1, output_mode="int"),
            "kind": space.integer_hashed(6, output_mode="int"),
            "day": space.integer_categorical(output_mode="one_hot"),
        },
        crosses=[space.cross(("city", "day"), crossing_dim=16, output_mode="int")],
        output_mode="dict",
    )
    before = from_keras(made)
    assert {"categorify": "city"} in before.features and {"cross": ["city", "day"], "buckets": 16} in before.features
    columns = {name: ITEMS[name].fill_null("").to_list() if name == "city" else ITEMS[name].to_list() for name in made.features}
    data = tf.data.Dataset.from_tensor_slices(columns)
    made.adapt(data)
    given_back = {name: np.asarray(one) for name, one in made(columns).items()}
    ours, there = _made(from_keras(made), tmp_path), _there("city")
    assert (ours["city"][there] >= 2).all()
    pairs = set(zip(ours["city"][there].tolist(), given_back["city"].ravel()[there].tolist(), strict=True))
    assert len(pairs) == len({one for one, _ in pairs}) == len({other for _, other in pairs})  # a renumbering
    np.testing.assert_allclose(ours["price"], given_back["price"].ravel(), rtol=1e-4, atol=1e-6)
    np.testing.assert_array_equal(ours["day_hot"][:, 2:], given_back["day"][:, 1:])


def _columns(columns: list[Any], names: list[str]) -> np.ndarray:
    """What TensorFlow makes of them."""
    values = {name: [[one] for one in _tensor(name).numpy().tolist()] for name in names}
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        features = {name: tf.constant(rows) for name, rows in values.items()}
        made = tf.compat.v1.feature_column.input_layer(features, columns)
        session.run([tf.compat.v1.global_variables_initializer(), tf.compat.v1.tables_initializer()])
        return np.asarray(session.run(made))


def test_feature_columns_give_equal_zeros_ones_and_numbers(tmp_path: Path) -> None:
    fc = tf.feature_column
    (tmp_path / "kinds.txt").write_text("3\n-7\n12\n11\n")
    price = fc.numeric_column("price")
    kind = fc.categorical_column_with_vocabulary_file("kind", str(tmp_path / "kinds.txt"), vocabulary_size=3, dtype=tf.int64)
    wide = {
        "day_hot": (fc.indicator_column(fc.categorical_column_with_identity("day", 7)), slice(2, None)),
        "city_hot": (fc.indicator_column(fc.categorical_column_with_vocabulary_list("city", WORDS)), slice(2, None)),
        "kind_hot": (fc.indicator_column(kind), slice(2, None)),
        "price": (price, None),
    }
    made = _made(from_feature_columns([column for column, _ in wide.values()], tmp_path), tmp_path)
    for name, (column, places) in wide.items():
        theirs = _columns([column], [name.removesuffix("_hot")])
        np.testing.assert_allclose(made[name] if places is None else made[name][:, places], theirs.squeeze(), rtol=1e-6)
    buckets = fc.bucketized_column(price, [10.0, 20.0])
    codes = _made(from_feature_columns([buckets]), tmp_path)["price_bucket"]
    np.testing.assert_array_equal(np.eye(3)[codes - 1], _columns([buckets], ["price"]))


def test_crossed_embedded_and_hashed_columns_are_converted_and_their_differences_said(tmp_path: Path) -> None:
    fc = tf.feature_column
    price = fc.bucketized_column(fc.numeric_column("price"), [10.0])
    cross = fc.crossed_column(["city", fc.categorical_column_with_identity("day", 7), price], 30)
    hashed = fc.categorical_column_with_hash_bucket("kind", 8, dtype=tf.int64)
    found = from_feature_columns([fc.embedding_column(cross, 4), hashed])
    made = _made(found, tmp_path)
    assert set(made["city_x_day_x_price_bucket"]) <= {0, *range(2, 32)} and set(made["kind"]) <= set(range(2, 10))
    assert any("width 4" in note for note in found.notes)


def _layer(layer: Any) -> dict[str, Any]:
    return {"x": keras.saving.serialize_keras_object(layer)}


def _column(kind: str, **config: Any) -> dict[str, Any]:
    return {"class_name": kind, "config": {"key": "x", **config}}


@pytest.mark.parametrize(
    ("document", "said"),
    [
        (lambda: _layer(layers.TextVectorization()), "TextVectorization of 'x': text is not split into words"),
        (lambda: _layer(layers.Lambda(lambda x: x)), "Lambda of 'x': it is code, and code from a file is never run"),
        (lambda: _layer(layers.Rescaling(0.1)), "Rescaling of 'x': .* 'normalise'"),
        (lambda: _layer(layers.Dense(3)), "Dense of 'x': not a preprocessing layer"),
        (lambda: _layer(layers.Hashing(9, mask_value="")), "Hashing of 'x': the served graph cannot hash text"),
        (lambda: _layer(layers.StringLookup(num_oov_indices=3)), "num_oov_indices is 3"),
        (lambda: _layer(layers.StringLookup(vocabulary=["a"], invert=True)), "invert turns codes back"),
        (lambda: _layer(layers.StringLookup(vocabulary=["a"], output_mode="count")), "output_mode 'count'"),
        (lambda: _layer(layers.Normalization(mean=[1.0, 2.0], variance=[1.0, 1.0])), "it normalises a vector"),
        (lambda: {"x y": keras.saving.serialize_keras_object(layers.Normalization())}, "'x y' is not a column name of a spec"),
        (lambda: {"x": {"module": "os", "class_name": "system", "config": {"command": "true"}}}, "system of 'x': not a preprocessing"),
        (lambda: [_column("NumericColumn", shape=[1], normalizer_fn="f")], "its normalizer_fn is code"),
        (lambda: [_column("NumericColumn", shape=[3])], "it has \\[3\\] numbers per row"),
        (lambda: [_column("HashedCategoricalColumn", hash_bucket_size=9, dtype="string")], "the served graph cannot hash text"),
        (lambda: [_column("WeightedCategoricalColumn")], "values cannot have weights"),
        (lambda: [_column("VocabularyFileCategoricalColumn", vocabulary_file="../secret")], "is not in or below"),
        (lambda: [_column("VocabularyFileCategoricalColumn", vocabulary_file="/etc/passwd")], "is not in or below"),
        (lambda: _column("IdentityCategoricalColumn", number_buckets="many"), "a whole number"),
        (lambda: [1, 2], "expected a Keras model"),
        (lambda: {}, "expected a Keras model"),
        (lambda: {"class_name": "Functional", "config": {"layers": []}}, "no preprocessing layer or feature column found"),
        (lambda: {"class_name": "FeatureSpace", "config": []}, "not a format of Keras or TensorFlow"),
    ],
)
def test_what_has_no_counterpart_is_refused_by_name(document: Any, said: str, tmp_path: Path) -> None:
    with pytest.raises(Invalid, match=said) as refused:
        from_document(json.loads(json.dumps(document(), default=str)), tmp_path, "layers.json")
    assert "\n" not in str(refused.value)


def test_all_that_is_wrong_is_said_at_once() -> None:
    with pytest.raises(Invalid, match=r"Lambda of 'a'.*Rescaling of 'b'"):
        from_keras({"a": layers.Lambda(lambda x: x), "b": layers.Rescaling(2.0), "c": layers.Normalization()})


def test_buckets_of_what_was_changed_are_refused_for_buckets_are_of_the_data() -> None:
    with pytest.raises(Invalid, match="its input is derived from 'x', but buckets use the raw column"):
        from_keras({"x": [layers.Normalization(axis=None), layers.Discretization([0.5])]})


def test_one_column_can_not_be_two_features_of_one_name() -> None:
    one, other = layers.StringLookup(vocabulary=["a"]), layers.StringLookup(vocabulary=["b"])
    column = keras.Input((1,), dtype="string", name="x")
    model = keras.Model(column, [one(column), other(column)])
    with pytest.raises(Invalid, match="'x' is encoded in two ways"):
        from_keras(model)


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_whatever_is_in_a_file_is_converted_or_refused(data: st.DataObject) -> None:
    anything = st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
        max_leaves=5,
    )
    documents = [
        {"x": keras.saving.serialize_keras_object(layers.IntegerLookup(vocabulary=[1, 2], num_oov_indices=2))},
        json.loads(_written_model()),
        [_column("EmbeddingColumn", categorical_column=_column("IdentityCategoricalColumn", number_buckets=4), dimension=3)],
    ]
    document = json.loads(json.dumps(data.draw(st.sampled_from(documents))))
    places = list(_places(document))
    holder, key = data.draw(st.sampled_from(places))
    holder[key] = data.draw(anything)
    try:
        from_document(document)
    except Invalid as error:
        assert str(error)


@functools.cache
def _written_model() -> str:
    return str(_model().to_json())


def _places(node: Any) -> Any:
    for key, part in node.items() if isinstance(node, dict) else enumerate(node):
        yield node, key
        if isinstance(part, dict | list):
            yield from _places(part)


def test_a_document_is_read_without_keras_and_without_running_anything() -> None:
    code = (
        "import sys; from pipelines.features.convert import from_document;"
        "from_document({'x': {'class_name': 'Discretization', 'config': {'bin_boundaries': [1.0]}}});"
        "print([name for name in ('keras', 'tensorflow') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=Path(__file__).parents[3])
    assert done.stdout.strip() == "[]"
