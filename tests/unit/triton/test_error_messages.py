"""Triton's words as a person reads them: measured ones, cut to what helps."""

from __future__ import annotations

import pytest

from services.triton.error_messages import plain

_LOADING = "load failed for model 'eyas_trial-movies-3': version 3 is at UNAVAILABLE state: Internal: "
_TRACE = (
    " At: /venv/onnxruntime_inference_collection.py(778): _create_inference_session /home/backends/onnxruntime/model.py(51): initialize ;"
)
_RUNNING = "[ONNXRuntimeError] : 1 : FAIL : Non-zero status code returned while running"

SAID = {
    f"{_LOADING}InvalidProtobuf: [ONNXRuntimeError] : 7 : INVALID_PROTOBUF : Load model from /home/models/3/model.onnx failed:"
    f"Protobuf parsing failed.{_TRACE}": "ONNX Runtime: Protobuf parsing failed: model.onnx is truncated or not an ONNX file",
    f"{_LOADING}Fail: [ONNXRuntimeError] : 1 : FAIL : Load model from /home/models/3/model.onnx failed:Fatal error: "
    f"org.nowhere:Frobnicate(-1) is not a registered function/op{_TRACE}": "ONNX Runtime: Fatal error: "
    "org.nowhere:Frobnicate(-1) is not a registered function/op",
    f"{_RUNNING} Div node. Name:'' Status Message: element_wise_ops.cc:692 Compute Integer division by zero": "ONNX Runtime: "
    "running Div node. Integer division by zero",
    f"{_RUNNING} ConstantOfShape node. Name:'fill' Status Message: /onnxruntime_src/onnxruntime/core/framework/bfc_arena.cc:360 void* "
    "onnxruntime::BFCArena::AllocateRawInternal(size_t, bool, onnxruntime::Stream*) Failed to allocate memory for requested buffer "
    "of size 4503599627370496": "ONNX Runtime: running ConstantOfShape node. Name:'fill' Failed to allocate memory for requested "
    "buffer of size 4503599627370496",
    "Stub process 'eyas_trial-movies-4_0_0' is not healthy.": "the process of the model has died: the model crashes its runtime",
    "Deadline Exceeded": "no answer in time",
    f"{_RUNNING} Loop node. Name:'' Status Message: Exiting due to terminate flag being set to true.": "no answer in time",
    "failed to connect to all addresses": "failed to connect to all addresses",
    "": "no reason given",
}


def test_a_reason_is_one_line_without_paths_and_tracebacks(subtests: pytest.Subtests) -> None:
    for said, line in SAID.items():
        with subtests.test(said=said):
            assert plain(said) == line


def test_a_long_reason_is_cut() -> None:
    assert len(plain("word " * 1000)) <= 400
