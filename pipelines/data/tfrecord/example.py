"""tf.train.Example as an own protobuf message: the same bytes without TensorFlow."""

from __future__ import annotations

import functools
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_FIELD = descriptor_pb2.FieldDescriptorProto
_KINDS = (
    ("bytes_list", "BytesList", _FIELD.TYPE_BYTES),
    ("float_list", "FloatList", _FIELD.TYPE_FLOAT),
    ("int64_list", "Int64List", _FIELD.TYPE_INT64),
)


@functools.cache
def example_class() -> Any:
    """Builds the class in a separate pool: TensorFlow, if loaded, uses this name in the default pool."""
    file = descriptor_pb2.FileDescriptorProto(name="example.proto", package="tensorflow", syntax="proto3")
    feature = file.message_type.add(name="Feature")
    feature.oneof_decl.add(name="kind")
    for number, (name, kind, of) in enumerate(_KINDS, 1):
        file.message_type.add(name=kind).field.add(name="value", number=1, type=of, label=_FIELD.LABEL_REPEATED)
        feature.field.add(
            name=name, number=number, type=_FIELD.TYPE_MESSAGE, type_name=f".tensorflow.{kind}", label=_FIELD.LABEL_OPTIONAL, oneof_index=0
        )
    features = file.message_type.add(name="Features")
    entry = features.nested_type.add(name="FeatureEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=_FIELD.TYPE_STRING, label=_FIELD.LABEL_OPTIONAL)
    entry.field.add(name="value", number=2, type=_FIELD.TYPE_MESSAGE, type_name=".tensorflow.Feature", label=_FIELD.LABEL_OPTIONAL)
    of_entry = ".tensorflow.Features.FeatureEntry"
    features.field.add(name="feature", number=1, type=_FIELD.TYPE_MESSAGE, type_name=of_entry, label=_FIELD.LABEL_REPEATED)
    example = file.message_type.add(name="Example")
    example.field.add(name="features", number=1, type=_FIELD.TYPE_MESSAGE, type_name=".tensorflow.Features", label=_FIELD.LABEL_OPTIONAL)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("tensorflow.Example"))
