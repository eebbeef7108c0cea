"""Turns errors of Triton and ONNX Runtime into one readable line, without the server's paths and tracebacks."""

from __future__ import annotations

import re

_LONGEST = 400
_NOISE = (
    re.compile(r" At: /.*$"),  # the backend's traceback
    re.compile(r"^load failed for model '[^']*': "),
    re.compile(r"version \d+ is at UNAVAILABLE state: "),
    re.compile(r"(?:Internal|Fail|InvalidProtobuf|InvalidArgument|InvalidGraph|NotImplemented|RuntimeException|NoSuchFile): "),
    re.compile(r"/onnxruntime_src/\S+ [^()]*\([^)]*\) "),  # source file and function
    re.compile(r"Load model from \S+ failed: ?"),
    re.compile(r"Non-zero status code returned while "),
    re.compile(r" Name:''"),
    re.compile(r"[ ;]+$"),
)
_WORDS = (
    (re.compile(r"(?:\[ONNXRuntimeError\] : \d+ : [A-Z_]+ : )+"), "ONNX Runtime: "),
    (re.compile(r" Status Message: (?:\w+\.cc:\d+ (?:Compute|operator\(\)|\w+) )?"), " "),
    (re.compile(r".*Stub process '?\S*'? ?is not healthy.*"), "the process of the model has died: the model crashes its runtime"),
    (re.compile(r"^Deadline Exceeded$|.*Exiting due to terminate flag being set to true.*"), "no answer in time"),
    (re.compile(r"(Protobuf parsing failed|No graph was found in the protobuf)\.?"), r"\1: model.onnx is truncated or not an ONNX file"),
)


def plain(message: str) -> str:
    text = " ".join(message.split())
    for pattern in _NOISE:
        text = pattern.sub("", text)
    for pattern, word in _WORDS:
        text = pattern.sub(word, text)
    return text[:_LONGEST] or "no reason given"
