"""What a graph may take from files: `weights.bin` beside it, within its bytes, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import pytest
from google.protobuf.descriptor import Descriptor
from onnx import TensorProto, helper

from shared.domain.errors import BadData
from shared.serving.external import PARTS, Kind, places, refuse_others

NAMES: dict[str, Kind] = {
    "ModelProto": "model", "GraphProto": "graph", "NodeProto": "node", "AttributeProto": "attribute", "TensorProto": "tensor",
    "SparseTensorProto": "sparse", "FunctionProto": "function", "TrainingInfoProto": "training",
}  # fmt: skip


def elsewhere(location: str = "/etc/passwd", **words: Any) -> TensorProto:
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[4], data_location=TensorProto.EXTERNAL)
    for key, value in ({"location": location} | words).items():
        tensor.external_data.add(key=key, value=str(value))
    return tensor


def graph(*weights: TensorProto, nodes: tuple[Any, ...] = ()) -> Any:
    return helper.make_graph(list(nodes), "g", [], [], list(weights))


def sparse(tensor: TensorProto) -> Any:
    return onnx.SparseTensorProto(values=tensor, indices=TensorProto(), dims=[4])


def attribute(**said: Any) -> Any:
    return onnx.NodeProto(op_type="If", attribute=[onnx.AttributeProto(name="a", **said)])


HIDING: dict[str, Callable[[TensorProto], Any]] = {
    "a weight": lambda one: helper.make_model(graph(one)),
    "a sparse weight": lambda one: onnx.ModelProto(graph=onnx.GraphProto(sparse_initializer=[sparse(one)])),
    "a constant": lambda one: helper.make_model(graph(nodes=(attribute(t=one),))),
    "several constants": lambda one: helper.make_model(graph(nodes=(attribute(tensors=[one]),))),
    "a sparse constant": lambda one: helper.make_model(graph(nodes=(attribute(sparse_tensor=sparse(one)),))),
    "a branch": lambda one: helper.make_model(graph(nodes=(attribute(g=graph(one)),))),
    "a branch of a branch": lambda one: helper.make_model(graph(nodes=(attribute(graphs=[graph(nodes=(attribute(g=graph(one)),))]),))),
    "a function": lambda one: onnx.ModelProto(functions=[onnx.FunctionProto(name="f", node=[attribute(t=one)])]),
    "a function's default": lambda one: onnx.ModelProto(functions=[onnx.FunctionProto(attribute_proto=[attribute(t=one).attribute[0]])]),
    "training": lambda one: onnx.ModelProto(training_info=[onnx.TrainingInfoProto(initialization=graph(one))]),
}


def written(folder: Path, model: Any) -> Path:
    path = folder / "model.onnx"
    path.write_bytes(model if isinstance(model, bytes) else model.SerializeToString())
    return path


def varint(number: int) -> bytes:
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*found, number])


@pytest.mark.requirement("G-24")
def test_another_file_is_found_wherever_a_tensor_may_be(tmp_path: Path, subtests: pytest.Subtests) -> None:
    for where, hide in HIDING.items():
        with subtests.test(where=where):
            path = written(tmp_path, hide(elsewhere()))
            with pytest.raises(
                BadData, match=r"model\.onnx: the graph reads weights from '/etc/passwd'; only weights\.bin beside it is allowed"
            ):
                refuse_others(path, 1 << 20)


OTHER_LOCATIONS = [
    "/etc/passwd",
    "../weights.bin",
    "./weights.bin",
    "sub/weights.bin",
    "weights.bin\0",
    "",
    "*/_ORT_MEM_ADDR_/*",
    "WEIGHTS.bin",
]


def test_the_location_is_the_one_name_to_the_letter(tmp_path: Path, subtests: pytest.Subtests) -> None:
    for location in OTHER_LOCATIONS:
        with subtests.test(location=location), pytest.raises(BadData, match="the graph reads weights from"):
            refuse_others(written(tmp_path, HIDING["a weight"](elsewhere(location))), 1 << 20)


def test_each_of_several_locations_of_a_tensor_counts(tmp_path: Path) -> None:
    for first, second in (("weights.bin", "other.bin"), ("other.bin", "weights.bin")):
        tensor = elsewhere(first)
        tensor.external_data.add(key="location", value=second)
        with pytest.raises(BadData, match=r"'other\.bin'"):
            refuse_others(written(tmp_path, HIDING["a weight"](tensor)), 100)


INVALID_EXTENTS = [
    ({"offset": 96, "length": 16}, r"the graph reads 16 bytes of weights\.bin from 96 on, which has 100"),
    ({"offset": 101}, "from 101 on"),
    ({"offset": -4}, "the offset of weights in weights.bin is not a number: '-4'"),
    ({"length": "9" * 5000}, "the length of weights in weights.bin is not a number"),
]


def test_what_it_takes_lies_within_the_file(tmp_path: Path, subtests: pytest.Subtests) -> None:
    for words, said in INVALID_EXTENTS:
        with subtests.test(words=words), pytest.raises(BadData, match=said):
            refuse_others(written(tmp_path, HIDING["a weight"](elsewhere("weights.bin", **words))), 100)


def test_a_file_that_the_unit_has_is_taken_and_one_that_it_has_not_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path, HIDING["a branch"](elsewhere("weights.bin", offset=84, length=16)))
    refuse_others(path, 100)
    with pytest.raises(BadData, match="which is missing; export it again"):
        refuse_others(path, None)


def test_a_graph_that_has_all_in_itself_takes_nothing_whatever_it_is_called(tmp_path: Path) -> None:
    inside = helper.make_tensor("location", TensorProto.FLOAT, [1], [1.0])
    assert places(written(tmp_path, helper.make_model(graph(inside, nodes=(attribute(s=b"location"),))))) == []
    assert places(written(tmp_path, b"")) == []
    assert places(written(tmp_path, b"no protobuf at all")) == []


def test_what_is_cut_short_behind_a_location_is_refused(tmp_path: Path, subtests: pytest.Subtests) -> None:
    for cut in range(1, 26):
        with subtests.test(cut=cut):
            content = HIDING["a branch of a branch"](elsewhere()).SerializeToString()[:-cut]
            with pytest.raises(BadData):
                refuse_others(written(tmp_path, content), None)


def test_a_graph_as_deep_as_a_mine_is_refused_and_doesnt_end_the_process(tmp_path: Path) -> None:
    inner = helper.make_model(graph(elsewhere())).graph.SerializeToString()

    def field(number: int, content: bytes) -> bytes:
        return varint(number << 3 | 2) + varint(len(content)) + content

    for _ in range(400):
        inner = field(1, field(5, field(6, inner)))
    with pytest.raises(BadData, match="truncated, or not an ONNX file"):
        refuse_others(written(tmp_path, field(7, inner)), None)


def test_the_fields_are_all_those_of_onnx_that_lead_to_tensors() -> None:
    found: dict[Kind, dict[int, Kind]] = {}

    def walk(one: Descriptor) -> None:
        kind = NAMES[one.name]
        if kind in found:
            return
        found[kind] = {}
        for field in one.fields:
            inner = field.message_type
            if inner is None or not leads(inner, set()):
                continue
            found[kind][field.number] = NAMES[inner.name]
            walk(inner)

    def leads(one: Descriptor, seen: set[str]) -> bool:
        if one.name == "TensorProto":
            return True
        seen.add(one.name)
        inner = (field.message_type for field in one.fields if field.message_type is not None)
        return any(leads(each, seen) for each in inner if each.name not in seen)

    walk(onnx.ModelProto.DESCRIPTOR)
    entry = onnx.TensorProto.DESCRIPTOR.fields_by_name["external_data"].number
    assert {kind: dict(fields) for kind, fields in PARTS.items()} == found | {"tensor": {entry: "entry"}, "entry": {}}
