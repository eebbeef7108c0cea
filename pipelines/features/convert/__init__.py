"""Keras preprocessing layers and TensorFlow feature columns as entries of a spec's `features`.

What is read is what Keras and TensorFlow write as JSON; nothing in it is run. What has no counterpart is refused by its name, with what to
do instead; where something is alike but not the same, a note says so.
"""

from pipelines.features.convert.document import from_document
from pipelines.features.convert.draft import Converted
from pipelines.features.convert.live import from_feature_columns, from_keras

__all__ = ["Converted", "from_document", "from_feature_columns", "from_keras"]
