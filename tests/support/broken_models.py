"""Models that hurt whoever serves them, each made here: files that are no model, graphs that lie, and graphs that kill.

All take `user` and `item`, as shared.testing's tiny units do, and call their output `score`.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from shared.testing.model_server_suite import tiny_model

POISON = 7
"""The user who kills the process of a `poisoned` model."""

_LEAST = -(2**63)


def node(op: str, inputs: Iterable[str], output: str, **attributes: Any) -> NodeProto:
    return helper.make_node(op, list(inputs), [output], **attributes)


def model(nodes: Sequence[NodeProto], *, kind: int = TensorProto.FLOAT, shape: Sequence[Any] = ("rows",), **constants: Any) -> ModelProto:
    inputs = [helper.make_tensor_value_info(name, TensorProto.INT64, ["rows"]) for name in ("user", "item")]
    score = helper.make_tensor_value_info("score", kind, list(shape))
    known = [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()]
    made = helper.make_graph(list(nodes), "g", inputs, [score], known)
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def content(nodes: Sequence[NodeProto], **more: Any) -> bytes:
    return bytes(model(nodes, **more).SerializeToString())


def to_float(name: str, output: str) -> NodeProto:
    return node("Cast", [name], output, to=TensorProto.FLOAT)


def corrupt() -> bytes:
    found = bytearray(tiny_model(2))
    for at in random.Random(3).sample(range(8, len(found)), 12):
        found[at] ^= 0xFF
    return bytes(found)


def truncated() -> bytes:
    found = tiny_model(2)
    return found[: len(found) // 2]


def one_score_for_all() -> bytes:
    nodes = [node("Add", ["user", "item"], "sum"), to_float("sum", "float"), node("ReduceSum", ["float"], "score", keepdims=1)]
    return content(nodes, shape=[1])


def two_scores_a_row() -> bytes:
    nodes = [
        to_float("user", "float"),
        node("Unsqueeze", ["float", "last"], "column"),
        node("Concat", ["column", "column"], "score", axis=1),
    ]
    return content(nodes, shape=["rows", 2], last=[1])


def whole_numbers() -> bytes:
    return content([node("Add", ["user", "item"], "score")], kind=TensorProto.INT64)


def no_numbers() -> bytes:
    return content([to_float("user", "float"), node("Sub", ["float", "float"], "zero"), node("Div", ["zero", "zero"], "score")])


def not_a_number_of_real_items() -> bytes:
    """A root of a number below zero; of zero, which is what a trial asks for, there is one."""
    nodes = [to_float("item", "float"), node("Neg", ["float"], "below"), node("Sqrt", ["below"], "score")]
    return content(nodes)


def vast_memory() -> bytes:
    """Asks for 18 petabytes."""
    return content([*_input_sized(2**52), node("ConstantOfShape", ["size"], "vast"), *_sum_of("vast")], **_NUMBERS)


def vast_memory_at_load() -> bytes:
    return content([node("ConstantOfShape", ["size"], "vast"), *_sum_of("vast")], size=[2**52])


def vast_answer() -> bytes:
    """16 MiB of scores for two rows: it would all go into shared memory."""
    return content([*_input_sized(2**22), node("ConstantOfShape", ["size"], "score")], **_NUMBERS)


def endless() -> bytes:
    """A loop of 2^60 rounds."""
    outside = [("i", TensorProto.INT64, []), ("going", TensorProto.BOOL, []), ("x", TensorProto.FLOAT, ["rows"])]
    inside = [helper.make_tensor_value_info(*one) for one in (("go_on", TensorProto.BOOL, []), ("y", TensorProto.FLOAT, ["rows"]))]
    steps = [node("Identity", ["going"], "go_on"), node("Sin", ["x"], "y")]
    body = helper.make_graph(steps, "body", [helper.make_tensor_value_info(*one) for one in outside], inside)
    return content([to_float("user", "float"), node("Loop", ["rounds", "true", "float"], "score", body=body)], rounds=2**60, true=True)


def slow_to_load(side: int, times: int) -> bytes:
    """ONNX Runtime multiplies what is constant while it loads: big matrices, again and again."""
    nodes = [node("ConstantOfShape", ["sides"], "m0", value=helper.make_tensor("even", TensorProto.FLOAT, [1], [1 / side]))]
    nodes += [node("MatMul", [f"m{at}", "m0"], f"m{at + 1}") for at in range(times)]
    return content([*nodes, *_sum_of(f"m{times}")], sides=[side, side])


def crashing() -> bytes:
    """The least whole number divided by minus one: the processor traps, which ONNX Runtime checks for a divisor of zero alone."""
    nodes = [
        node("Mul", ["item", "none"], "zeros"),
        node("Add", ["zeros", "least"], "leasts"),
        node("Div", ["leasts", "minus_one"], "ratio"),
    ]
    return content([*nodes, to_float("ratio", "score")], none=0, least=_LEAST, minus_one=-1)


def crashing_at_load() -> bytes:
    """The same among constants, which are computed while it loads."""
    nodes = [node("Div", ["least", "minus_one"], "ratio"), node("Add", ["user", "ratio"], "sum"), to_float("sum", "score")]
    return content(nodes, least=_LEAST, minus_one=-1)


def poisoned() -> bytes:
    """Answers everybody, and dies of one user: no trial finds that."""
    nodes = [
        node("Sub", ["user", "poison"], "away"),
        node("Abs", ["away"], "distance"),
        node("Min", ["distance", "one"], "harmless"),  # 0 for that user, 1 for all others
        node("Sub", ["minus_one", "harmless"], "divisor"),
        node("Mul", ["item", "none"], "zeros"),
        node("Add", ["zeros", "least"], "leasts"),
        node("Div", ["leasts", "divisor"], "ratio"),
        to_float("ratio", "score"),
    ]
    return content(nodes, poison=POISON, one=1, minus_one=-1, none=0, least=_LEAST)


def reads_other_files() -> bytes:
    """Its weights are said to lie in a file of the machine."""
    made = model([node("ReduceSum", ["stolen"], "sum", keepdims=0), to_float("user", "float"), node("Add", ["float", "sum"], "score")])
    stolen = TensorProto(name="stolen", data_type=TensorProto.FLOAT, dims=[4], data_location=TensorProto.EXTERNAL)
    for key, value in (("location", "/etc/passwd"), ("length", "16")):
        stolen.external_data.add(key=key, value=value)
    made.graph.initializer.append(stolen)
    return bytes(made.SerializeToString())


def _input_sized(size: int) -> list[NodeProto]:
    """`size`, known at run time alone."""
    steps = [node("Mul", ["item", "none"], "zeros"), node("ReduceMax", ["zeros"], "zero", keepdims=1)]
    return [*steps, node("Constant", [], "asked", value_ints=[size]), node("Add", ["zero", "asked"], "size")]


_NUMBERS: Mapping[str, Any] = {"none": 0}


def _sum_of(name: str) -> list[NodeProto]:
    return [node("ReduceSum", [name], "sum", keepdims=0), to_float("user", "float"), node("Add", ["float", "sum"], "score")]


BROKEN: Mapping[str, tuple[Callable[[], bytes], str]] = {
    "corrupt": (corrupt, "ONNX Runtime: "),
    "truncated": (truncated, "model.onnx is truncated or not an ONNX file"),
    "empty": (bytes, "model.onnx is truncated or not an ONNX file"),
    "one score for all rows": (one_score_for_all, "has the shape (1,) for 2 rows, expected (2,)"),
    "two scores a row": (two_scores_a_row, "has the shape (2, 2) for 2 rows, expected (2,)"),
    "whole numbers": (whole_numbers, "has the type int64, expected float32"),
    "no numbers": (no_numbers, "is nan for a row of zeros and empty texts"),
    "vast memory": (vast_memory, "Failed to allocate memory"),
    "vast memory at load": (vast_memory_at_load, "Failed to allocate memory"),
    "vast answer": (vast_answer, "has the shape (4194304,) for 2 rows, expected (2,)"),
    "endless": (endless, "no answer in time"),
    "crashing": (crashing, "the process of the model has died"),
    "crashing at load": (crashing_at_load, "died"),
    "reads other files": (reads_other_files, "the graph reads weights from '/etc/passwd'"),
}
"""What can't be served, and what is said of it."""
