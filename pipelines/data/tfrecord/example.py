"""tf.train.Example as an own protobuf message: the same bytes without TensorFlow."""

from __future__ import annotations

import functools
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format

_SCHEMA = """
name: "example.proto" package: "tensorflow" syntax: "proto3"
message_type { name: "BytesList" field { name: "value" number: 1 type: TYPE_BYTES label: LABEL_REPEATED } }
message_type { name: "FloatList" field { name: "value" number: 1 type: TYPE_FLOAT label: LABEL_REPEATED } }
message_type { name: "Int64List" field { name: "value" number: 1 type: TYPE_INT64 label: LABEL_REPEATED } }
message_type {
  name: "Feature" oneof_decl { name: "kind" }
  field { name: "bytes_list" number: 1 type_name: ".tensorflow.BytesList" type: TYPE_MESSAGE label: LABEL_OPTIONAL oneof_index: 0 }
  field { name: "float_list" number: 2 type_name: ".tensorflow.FloatList" type: TYPE_MESSAGE label: LABEL_OPTIONAL oneof_index: 0 }
  field { name: "int64_list" number: 3 type_name: ".tensorflow.Int64List" type: TYPE_MESSAGE label: LABEL_OPTIONAL oneof_index: 0 }
}
message_type {
  name: "Features"
  nested_type {
    name: "FeatureEntry" options { map_entry: true }
    field { name: "key" number: 1 type: TYPE_STRING label: LABEL_OPTIONAL }
    field { name: "value" number: 2 type_name: ".tensorflow.Feature" type: TYPE_MESSAGE label: LABEL_OPTIONAL }
  }
  field { name: "feature" number: 1 type_name: ".tensorflow.Features.FeatureEntry" type: TYPE_MESSAGE label: LABEL_REPEATED }
}
message_type {
  name: "Example"
  field { name: "features" number: 1 type_name: ".tensorflow.Features" type: TYPE_MESSAGE label: LABEL_OPTIONAL }
}
"""


@functools.cache
def example_class() -> Any:
    """Builds the class in a separate pool: TensorFlow, if loaded, uses this name in the default pool."""
    pool = descriptor_pool.DescriptorPool()
    pool.Add(text_format.Parse(_SCHEMA, descriptor_pb2.FileDescriptorProto()))
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("tensorflow.Example"))
