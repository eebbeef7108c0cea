"""config.pbtxt is read by protobuf's own reader as what was meant, whatever names have in them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from google.protobuf import text_format
from hypothesis import given
from hypothesis import strategies as st
from tritonclient.grpc import model_config_pb2

from shared.serving.config import Batching, ModelConfig, WarmUp, model_config
from shared.serving.pbtext import EnumWord, write
from shared.serving.signature import Feature, Input, Signature, Tensor

SIGNATURE = Signature(
    user="userId",
    item="movieId",
    inputs=(
        Input(name="userId", dtype="int64", side="user"),
        Input(name="movieId", dtype="int64", side="item"),
        Input(name="genres", dtype="string", width=3, side="item"),
    ),
    features=(Feature(column="genres", output="codes/genres", width=3),),
)


def read(config: ModelConfig) -> model_config_pb2.ModelConfig:
    return text_format.Parse(config.text(), model_config_pb2.ModelConfig())


@pytest.mark.requirement("T-12", "T-13")
def test_triton_is_told_names_types_and_versions_as_the_signature_has_them() -> None:
    found = read(model_config("eyas-m_1", SIGNATURE, [3, 1, 3]))
    assert (found.name, found.backend, found.max_batch_size) == ("eyas-m_1", "onnxruntime", 0)
    assert [(one.name, one.data_type, list(one.dims)) for one in found.input] == [
        ("userId", model_config_pb2.TYPE_INT64, [-1]),
        ("movieId", model_config_pb2.TYPE_INT64, [-1]),
        ("genres", model_config_pb2.TYPE_STRING, [-1, 3]),
    ]
    assert [(one.name, one.data_type, list(one.dims)) for one in found.output] == [
        ("score", model_config_pb2.TYPE_FP32, [-1]),
        ("codes/genres", model_config_pb2.TYPE_INT32, [-1, 3]),
    ]
    assert list(found.version_policy.specific.versions) == [1, 3]
    assert [(one.count, one.kind) for one in found.instance_group] == [(1, model_config_pb2.ModelInstanceGroup.KIND_CPU)]
    assert not found.HasField("dynamic_batching") and not found.model_warmup


def test_instances_and_the_first_call_are_the_signatures() -> None:
    found = read(model_config("m", SIGNATURE.model_copy(update={"instances": 2, "warm_up": 8}), [1]))
    assert found.instance_group[0].count == 2
    (first,) = found.model_warmup
    assert (first.batch_size, first.count) == (0, 1)
    assert {name: (one.data_type, list(one.dims), one.zero_data) for name, one in first.inputs.items()} == {
        "userId": (model_config_pb2.TYPE_INT64, [8], True),
        "movieId": (model_config_pb2.TYPE_INT64, [8], True),
        "genres": (model_config_pb2.TYPE_STRING, [8, 3], True),
    }


@pytest.mark.requirement("T-05", "T-12")
def test_lists_as_offsets_are_two_tensors_of_lengths_of_their_own() -> None:
    *keys, genres = SIGNATURE.inputs
    signature = SIGNATURE.model_copy(update={"inputs": (genres.model_copy(update={"lists": "offsets"}), *keys), "warm_up": 8})
    found = read(model_config("m", signature, [1]))
    assert [(one.name, one.data_type, list(one.dims)) for one in found.input] == [
        ("userId", model_config_pb2.TYPE_INT64, [-1]),
        ("movieId", model_config_pb2.TYPE_INT64, [-1]),
        ("genres__values", model_config_pb2.TYPE_STRING, [-1]),
        ("genres__offsets", model_config_pb2.TYPE_INT64, [-1]),
    ]
    (first,) = found.model_warmup
    assert {name: list(one.dims) for name, one in first.inputs.items()} == {
        "userId": [8],
        "movieId": [8],
        "genres__values": [0],
        "genres__offsets": [9],
    }
    with pytest.raises(ValueError, match="'genres__values' does not have one value per row; a model that batches needs padded lists"):
        replace(model_config("m", signature, [1]), batching=Batching(rows=4)).text()


def test_a_model_that_batches_has_no_dimension_of_rows_of_its_own() -> None:
    batching = Batching(rows=64, preferred=(16, 32), delay_us=500)
    found = read(replace(model_config("m", SIGNATURE, [1]), batching=batching, warm_up=WarmUp(4), file="trees.ubj"))
    assert (found.max_batch_size, found.default_model_filename) == (64, "trees.ubj")
    assert [(list(one.dims), one.HasField("reshape"), list(one.reshape.shape)) for one in found.input] == [
        ([1], True, []),
        ([1], True, []),
        ([3], False, []),
    ]
    assert list(found.dynamic_batching.preferred_batch_size) == [16, 32]
    assert found.dynamic_batching.max_queue_delay_microseconds == 500
    assert found.model_warmup[0].batch_size == 4
    assert list(found.model_warmup[0].inputs["genres"].dims) == [3]


def test_batching_that_makes_no_sense_is_refused(subtests: pytest.Subtests) -> None:
    for wrong in ({"rows": 0}, {"rows": 4, "preferred": (8,)}, {"rows": 4, "delay_us": -1}):
        with subtests.test(wrong=wrong), pytest.raises(ValueError, match="batching: expected 1 row or more"):
            Batching(**wrong)  # type: ignore[arg-type]


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=40))
def test_every_name_is_read_back_as_it_was(name: str) -> None:
    config = ModelConfig(name, "b", (Tensor(name, "int64"),), (Tensor("score", "float32"),), (1,), file=name)
    found = read(config)
    assert (found.name, found.input[0].name, found.default_model_filename) == (name, name, name)


def test_text_numbers_words_and_lists_are_written_each_in_its_way() -> None:
    text = write({"a": 'x"\\\n', "b": [1, 2], "c": EnumWord("KIND"), "d": {"e": True}, "f": []})
    assert text == 'a: "x\\042\\134\\012"\nb: 1\nb: 2\nc: KIND\nd { e: true }\n'
