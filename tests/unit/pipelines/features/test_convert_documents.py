"""Documents of Keras and TensorFlow become entries of `features`: by literal documents, without either library.

That the features give what the layers give is held against Keras and TensorFlow in tests/training/frameworks/test_convert.py.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.features.convert import from_document
from pipelines.features.raw import item_columns, signature
from shared.domain.errors import Invalid
from tests.support.feature_graphs import fitted
from tests.unit.pipelines.recommender import spec

pytestmark = pytest.mark.requirement("L-05")
Document = Any


def layer(kind: str, **config: Any) -> dict[str, Any]:
    """As keras.saving.serialize_keras_object writes it."""
    return {"module": "keras.layers", "class_name": kind, "config": {"name": kind.lower(), **config}, "registered_name": None}


def column(kind: str, **config: Any) -> dict[str, Any]:
    """As TensorFlow's serialize_feature_column writes it."""
    return {"class_name": kind, "config": {"key": "x", **config}}


def strings(vocabulary: list[str] | None, mask: str | None = None, unknown: int = 1, mode: str = "int", **config: Any) -> dict[str, Any]:
    fixed = {"num_oov_indices": unknown, "oov_token": "[UNK]", "mask_token": mask, "output_mode": mode, "invert": False}
    return layer("StringLookup", vocabulary=vocabulary, **fixed, **config)


def integers(vocabulary: list[int] | None, unknown: int = 1, **config: Any) -> dict[str, Any]:
    fixed = {"num_oov_indices": unknown, "oov_token": -1, "mask_token": None, "output_mode": "int", "invert": False}
    return layer("IntegerLookup", vocabulary=vocabulary, **fixed, **config)


def call(name: str, *inputs: str, number: int = 0) -> list[dict[str, Any]]:
    """The inbound nodes of a layer that is called once."""
    tensors = [{"class_name": "__keras_tensor__", "config": {"keras_history": [one, number, 0]}} for one in inputs]
    return [{"args": tensors if len(tensors) == 1 else [tensors], "kwargs": {}}]


def placed(name: str, described: dict[str, Any], *inputs: str) -> dict[str, Any]:
    """A layer of a functional model."""
    return described | {"name": name, "inbound_nodes": call(name, *inputs)}


def given_as(name: str, dtype: str, width: int = 1) -> dict[str, Any]:
    return {"class_name": "InputLayer", "name": name, "config": {"batch_shape": [None, width], "dtype": dtype, "name": name}}


WORDS = ["Lyon", "Øre"]
MODEL = {
    "class_name": "Functional",
    "config": {
        "layers": [
            given_as("price", "float32"),
            given_as("city", "string"),
            given_as("kind", "int64"),
            given_as("day", "int64"),
            given_as("tags", "string", 3),
            placed("cut", layer("Discretization", bin_boundaries=[10.0, 20.0], output_mode="int"), "price"),
            placed("looked", strings(WORDS), "city"),
            placed("embedded", layer("Embedding", input_dim=5, output_dim=4), "looked"),
            placed("flat", layer("Flatten"), "embedded"),
            placed("tagged", strings(["a", "b"], mask="", mode="multi_hot"), "tags"),
            placed("bins", layer("CategoryEncoding", num_tokens=3, output_mode="one_hot"), "cut"),
            placed("crossed", layer("HashedCrossing", num_bins=50, output_mode="one_hot"), "kind", "day"),
            placed("all", layer("Concatenate"), "flat", "tagged", "bins", "crossed", "price"),
            placed("score", layer("Dense", units=1), "all"),
        ]
    },
}
SEQUENTIAL = {
    "class_name": "Sequential",
    "config": {"layers": [given_as("kind", "int64"), integers([3, 5]), layer("Embedding", input_dim=4, output_dim=8)]},
}
SPACE = {
    "class_name": "FeatureSpace",
    "config": {
        "features": {
            "price": {"config": {"dtype": "float32", "preprocessor": layer("Normalization", axis=None), "output_mode": "float"}},
            "city": {"config": {"dtype": "string", "preprocessor": strings(None), "output_mode": "int"}},
            "kind": {"config": {"dtype": "int64", "preprocessor": layer("Hashing", num_bins=6), "output_mode": "one_hot"}},
            "plain": {"config": {"dtype": "float32", "preprocessor": layer("TFDIdentity"), "output_mode": "float"}},
        },
        "crosses": [{"config": {"feature_names": ["city", "kind"], "crossing_dim": 16, "output_mode": "one_hot"}}],
        "output_mode": "dict",
    },
}
NUMBER = column("NumericColumn", shape=[1], dtype="float32", default_value=None, normalizer_fn=None)
DAY = column("IdentityCategoricalColumn", number_buckets=7, default_value=None) | {
    "config": {"key": "day", "number_buckets": 7, "default_value": None}
}
CONVERTED: dict[str, tuple[Document, list[dict[str, Any]], str]] = {
    "words with a mask": ({"x": strings(["", "[UNK]", "a", "b"], mask="")}, [{"categorify": "x", "values": ["a", "b"]}], ""),
    "words without unknown ones": ({"x": strings(["a"], unknown=0)}, [{"categorify": "x", "values": ["a"]}], "the code of unknown values"),
    "words that are counted": ({"x": strings(None, max_tokens=4)}, [{"categorify": "x", "max_size": 3}], "counted in the data"),
    "words and a mask that are counted": ({"x": strings(None, mask="", max_tokens=4)}, [{"categorify": "x", "max_size": 2}], "counted"),
    "another mask": ({"x": strings(["a"], mask="-")}, [{"categorify": "x", "values": ["a"]}], "the mask '-' has no effect"),
    "integers in buckets": ({"x": integers([3, 5], 4)}, [{"categorify": "x", "values": [3, 5], "hash_buckets": 4}], "share 4 codes"),
    "one hot words": (
        {"x": strings(["a"], mode="one_hot")},
        [{"categorify": "x", "values": ["a"]}, {"one_hot": "x"}],
        "",
    ),
    "multi hot words": ({"x": strings(["a"], mode="multi_hot")}, [{"multi_hot": "x", "values": ["a"]}, {"one_hot": "x"}], ""),
    "hashed": ({"x": layer("Hashing", num_bins=5)}, [{"categorify": "x", "values": [], "hash_buckets": 5}], "the hash function differs"),
    "hashed with a mask": (
        {"x": layer("Hashing", num_bins=5, mask_value=0)},
        [{"categorify": "x", "values": [], "hash_buckets": 4}],
        "the mask 0 has no effect",
    ),
    "hashed and one hot": (
        {"x": layer("Hashing", num_bins=5, output_mode="one_hot")},
        [{"categorify": "x", "values": [], "hash_buckets": 5}, {"one_hot": "x"}],
        "only integers are hashed",
    ),
    "codes as numbers": (
        {"x": layer("CategoryEncoding", num_tokens=3, output_mode="one_hot")},
        [{"categorify": "x", "values": [0, 1, 2]}, {"one_hot": "x"}],
        "",
    ),
    "many codes as numbers": (
        {"x": layer("CategoryEncoding", num_tokens=3_000, output_mode="multi_hot")},
        [{"multi_hot": "x", "max_size": 3_000}, {"one_hot": "x", "max_width": 3_002}],
        "of its 3,000 numbers, only those in the data get codes",
    ),
    "a chain": (
        {"x": [integers([3, 5]), layer("CategoryEncoding", num_tokens=3, output_mode="one_hot")]},
        [{"categorify": "x", "values": [3, 5]}, {"one_hot": "x"}],
        "",
    ),
    "normalised": ({"x": layer("Normalization", axis=None, mean=[[2.0]], variance=[[1.0]])}, [{"normalise": "x"}], "mean and deviation"),
    "cut": ({"x": layer("Discretization", bin_boundaries=[1.0, 2.5])}, [{"bucketise": "x", "at": [1.0, 2.5]}], ""),
    "cut by quantiles": ({"x": layer("Discretization", num_bins=4)}, [{"bucketise": "x", "quantiles": 4}], "they are quantiles"),
    "cut and one hot": (
        {"x": layer("Discretization", bin_boundaries=[1.0], output_mode="one_hot")},
        [{"bucketise": "x", "at": [1.0]}, {"one_hot": "x_bucket"}],
        "",
    ),
    "a model": (
        MODEL,
        [
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
        ],
        "its width 4 is not converted",
    ),
    "a sequential model": (SEQUENTIAL, [{"categorify": "kind", "values": [3, 5]}], "its width 8"),
    "a feature space": (
        SPACE,
        [
            {"categorify": "city"},
            {"categorify": "kind", "values": [], "hash_buckets": 6},
            {"normalise": "price"},
            {"fill": "plain", "with": 0.0},
            {"cross": ["city", "kind"], "buckets": 16},
            {"one_hot": "kind"},
            {"one_hot": "city_x_kind"},
        ],
        "counted in the data",
    ),
    "a numeric column": ([NUMBER], [{"fill": "x", "with": 0.0}], ""),
    "a numeric column with a default": (column("NumericColumn", shape=[1], default_value=[2.5]), [{"fill": "x", "with": 2.5}], ""),
    "buckets": (column("BucketizedColumn", source_column=NUMBER, boundaries=[1.0, 2.0]), [{"bucketise": "x", "at": [1.0, 2.0]}], ""),
    "a list of words": (
        column("VocabularyListCategoricalColumn", vocabulary_list=["a", "b"], num_oov_buckets=0, default_value=-1),
        [{"categorify": "x", "values": ["a", "b"]}],
        "the column ignores them",
    ),
    "a list of integers with buckets": (
        column("VocabularyListCategoricalColumn", vocabulary_list=[1, 2], num_oov_buckets=3),
        [{"categorify": "x", "values": [1, 2], "hash_buckets": 3}],
        "share 3 codes",
    ),
    "a file of integers": (
        column("VocabularyFileCategoricalColumn", vocabulary_file="kinds.txt", vocabulary_size=2, dtype="int64", num_oov_buckets=1),
        [{"categorify": "x", "values": [3, -7]}],
        "it becomes one value per row",
    ),
    "an identity": (DAY, [{"categorify": "day", "values": [0, 1, 2, 3, 4, 5, 6]}], "it becomes one value per row"),
    "a hashed column": (
        column("HashedCategoricalColumn", hash_bucket_size=8, dtype="int64"),
        [{"categorify": "x", "values": [], "hash_buckets": 8}],
        "the hash function differs",
    ),
    "an embedded cross": (
        {
            "class_name": "EmbeddingColumn",
            "config": {
                "categorical_column": {"class_name": "CrossedColumn", "config": {"keys": ["city", DAY], "hash_bucket_size": 30}},
                "dimension": 4,
                "combiner": "mean",
            },
        },
        [{"categorify": "day", "values": [0, 1, 2, 3, 4, 5, 6]}, {"categorify": "city"}, {"cross": ["city", "day"], "buckets": 30}],
        "width 4 is not converted",
    ),
    "an indicator": (
        {"class_name": "IndicatorColumn", "config": {"categorical_column": DAY}},
        [{"categorify": "day", "values": [0, 1, 2, 3, 4, 5, 6]}, {"one_hot": "day"}],
        "",
    ),
}


def test_documents_become_entries_of_features(subtests: pytest.Subtests, tmp_path: Path) -> None:
    (tmp_path / "kinds.txt").write_text("3\n-7\n12\n")
    for name, (document, features, note) in CONVERTED.items():
        with subtests.test(document=name):
            found = from_document(json.loads(json.dumps(document)), tmp_path)
            assert [dict(one) for one in found.features] == features
            assert note in "\n".join(found.notes)


REFUSED: list[tuple[Document, str]] = [
    ({"x": layer("TextVectorization")}, "TextVectorization of 'x': text is not split into words"),
    ({"x": layer("Lambda")}, "Lambda of 'x': it is code, and code from a file is never run"),
    ({"x": layer("Rescaling", scale=0.1)}, "Rescaling of 'x': .* 'normalise'"),
    ({"x": layer("Dense", units=3)}, "Dense of 'x': not a preprocessing layer"),
    ({"x": layer("Hashing", num_bins=9, mask_value="")}, "Hashing of 'x': the served graph cannot hash text"),
    ({"x": layer("Hashing", num_bins=1, mask_value=0)}, "its mask leaves no bin for a value"),
    ({"x": strings(["a"], unknown=3)}, "num_oov_indices is 3"),
    ({"x": strings(["a"]) | {"config": strings(["a"])["config"] | {"invert": True}}}, "invert turns codes back"),
    ({"x": strings(["a"], mode="count")}, "output_mode 'count'"),
    ({"x": strings(None, max_tokens=1)}, "max_tokens leaves no room for a value"),
    ({"x": layer("StringLookup", vocabulary="words.txt", num_oov_indices=1)}, "its vocabulary is in the file 'words.txt'"),
    ({"x": layer("Normalization", mean=[1.0, 2.0], variance=[1.0, 1.0])}, "it normalises a vector"),
    ({"x": layer("Normalization", invert=True)}, "invert undoes a normalisation"),
    ({"x": layer("Discretization", bin_boundaries=[2.0, 1.0])}, "'bin_boundaries' must rise"),
    ({"x": layer("CategoryEncoding", num_tokens=3, output_mode="int")}, "output_mode 'int' is not possible"),
    (
        {"x": [layer("Normalization"), layer("Discretization", bin_boundaries=[0.5])]},
        "its input is derived from 'x', but buckets use the raw column",
    ),
    ({"x": [strings(["a"]), layer("Normalization")]}, "'x' has codes, but the layer takes a number"),
    ({"x y": layer("Normalization")}, "'x y' is not a column name of a spec"),
    ({"x": {"module": "os", "class_name": "system", "config": {"command": "true"}}}, "system of 'x': not a preprocessing"),
    ({"a": layer("Lambda"), "b": layer("Rescaling"), "c": layer("Normalization")}, r"Lambda of 'a'.*Rescaling of 'b'"),
    ([column("NumericColumn", shape=[1], normalizer_fn="f")], "its normalizer_fn is code"),
    ([column("NumericColumn", shape=[3])], "it has \\[3\\] numbers per row"),
    ([column("HashedCategoricalColumn", hash_bucket_size=9, dtype="string")], "the served graph cannot hash text"),
    ([column("WeightedCategoricalColumn")], "values cannot have weights"),
    ([column("BucketizedColumn", source_column=DAY, boundaries=[1.0])], "only a NumericColumn can be"),
    ([column("VocabularyListCategoricalColumn", vocabulary_list=["a"], num_oov_buckets=2)], "num_oov_buckets is 2"),
    ([column("VocabularyFileCategoricalColumn", vocabulary_file="../secret")], "is not in or below"),
    ([column("VocabularyFileCategoricalColumn", vocabulary_file="/etc/passwd")], "is not in or below"),
    ([column("VocabularyFileCategoricalColumn", vocabulary_file="words.txt", dtype="int64")], "lines that are not integers"),
    (column("IdentityCategoricalColumn", number_buckets="many"), "a whole number"),
    ([1, 2], "expected a Keras model"),
    ({}, "expected a Keras model"),
    ({"class_name": "Functional", "config": {"layers": []}}, "no preprocessing layer or feature column found"),
    ({"class_name": "Sequential", "config": {"layers": [layer("Normalization")]}}, "does not name its column"),
    ({"class_name": "FeatureSpace", "config": []}, "not a format of Keras or TensorFlow"),
]


def test_what_has_no_counterpart_is_refused_by_name(subtests: pytest.Subtests, tmp_path: Path) -> None:
    (tmp_path / "words.txt").write_text("a\nb\n")
    for document, said in REFUSED:
        with subtests.test(said=said):
            with pytest.raises(Invalid, match=said) as refused:
                from_document(json.loads(json.dumps(document)), tmp_path, "layers.json")
            assert "\n" not in str(refused.value)


def test_a_column_that_is_encoded_in_two_ways_is_refused() -> None:
    layers = [given_as("x", "string"), placed("one", strings(["a"]), "x"), placed("other", strings(["b"]), "x")]
    with pytest.raises(Invalid, match="'x' is encoded in two ways"):
        from_document({"class_name": "Functional", "config": {"layers": layers}})


def test_converted_features_are_fitted_and_served_alike(tmp_path: Path) -> None:
    """The model's: codes, zeros and ones, buckets and numbers, by polars and by ONNX."""
    items = pl.DataFrame(
        {
            "movieId": range(1, 7),
            "city": ["Lyon", "Øre", "", None, "Ulm", "Lyon"],
            "kind": [3, -7, 2**40, 0, 3, 3],
            "day": [0, 1, 2, 3, 4, 5],
            "price": [9.5, 10.0, 20.0, 1e6, -5.0, 15.0],
            "tags": [["a"], ["b", "a"], [], ["z", "a"], ["b"], ["a"]],
        }
    )
    entries = [{"categorify": ["userId", "movieId"]}, *map(dict, from_document(MODEL).features)]
    seen = pl.LazyFrame({"user": [7], "item": [1], "time": [0.0], "label": [1]})
    ready = fitted(spec(tmp_path, features=entries), seen, items)
    graph = ready.graph
    session = onnxruntime.InferenceSession(graph.lower().SerializeToString(), providers=["CPUExecutionProvider"])
    raw = item_columns(ready.items, signature(graph)) | {"userId": np.full(len(items), 7)}
    served = dict(zip([one.name for one in graph.features], session.run([one.output for one in graph.features], raw), strict=True))
    ours = graph.transform(ready.items.lazy(), "item").collect()
    for one in graph.side("item"):
        np.testing.assert_allclose(ours[one.name].to_numpy(), served[one.name], rtol=1e-6)
    assert ours["city"].to_list() == [2, 3, 0, 0, 1, 2]
    assert ours["price_bucket"].to_list() == [1, 2, 3, 3, 1, 2]
    assert ours["tags_hot"].to_list() == [[0, 0, 1, 0], [0, 0, 1, 1], [0, 0, 0, 0], [0, 1, 1, 0], [0, 0, 0, 1], [0, 0, 1, 0]]


@settings(max_examples=60)
@given(st.data())
def test_whatever_is_in_a_file_is_converted_or_refused(data: st.DataObject) -> None:
    anything = st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
        max_leaves=5,
    )
    document = json.loads(json.dumps(data.draw(st.sampled_from([one for one, _, _ in CONVERTED.values()]))))
    holder, key = data.draw(st.sampled_from(list(places(document))))
    holder[key] = data.draw(anything)
    try:
        from_document(document)
    except Invalid as error:
        assert str(error)


def places(node: Any) -> Any:
    for key, part in node.items() if isinstance(node, dict) else enumerate(node):
        yield node, key
        if isinstance(part, dict | list):
            yield from places(part)
