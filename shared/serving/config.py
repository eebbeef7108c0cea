"""Writes config.pbtxt from types: nobody concatenates a model configuration by hand.

The same file serves on the native onnxruntime backend (cluster) and on the Python one of the embedded server.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

from shared.serving.signature import DataType, Signature

_TRITON_TYPES: dict[DataType, str] = {"int64": "TYPE_INT64", "float32": "TYPE_FP32", "string": "TYPE_STRING"}


def model_config(name: str, signature: Signature, versions: Iterable[int], instances: int = 1) -> str:
    """The whole configuration. `versions` are the ones that serve: always named, never `latest` or `all`."""
    listed = sorted(set(versions))
    inputs = [_tensor(one.name, one.dtype, [-1] if one.width is None else [-1, one.width]) for one in signature.inputs]
    return "\n".join(
        [
            f"name: {json.dumps(name)}",
            'backend: "onnxruntime"',
            "max_batch_size: 0",
            f"input [{', '.join(inputs)}]",
            f"output [{_tensor(signature.output, 'float32', [-1])}]",
            f"instance_group [{{count: {instances}, kind: KIND_CPU}}]",
            f"version_policy: {{specific: {{versions: {json.dumps(listed)}}}}}",
            "",
        ]
    )


def _tensor(name: str, dtype: DataType, dims: list[int]) -> str:
    return f"{{name: {json.dumps(name)}, data_type: {_TRITON_TYPES[dtype]}, dims: {json.dumps(dims)}}}"
