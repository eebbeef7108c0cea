"""Converts Keras preprocessing layers and TensorFlow feature columns to entries of a spec's `features`.

Reads the JSON that Keras and TensorFlow write; runs no code from it. Rejects parts without a counterpart by name, with an alternative;
notes differences where a counterpart isn't exact.
"""

from pipelines.features.convert.document import from_document
from pipelines.features.convert.draft import Converted
from pipelines.features.convert.live import from_feature_columns, from_keras

__all__ = ["Converted", "from_document", "from_feature_columns", "from_keras"]
