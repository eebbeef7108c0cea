"""Loads Keras on TensorFlow: late, because it takes six seconds, and quietly, because its banner would bury what matters.

TensorFlow writes its information lines straight to the process's stderr before any setting of ours counts. They are held
back while it loads; warnings and errors among them still come through.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_NOISE = re.compile(rb"(I\d{4} .*|WARNING: All log messages before absl::InitializeLog\(\).*|To enable the following instructions:.*|)\n?")


def load_keras() -> Any:
    os.environ.setdefault("KERAS_BACKEND", "tensorflow")
    load_tensorflow()
    import keras

    return keras


def load_tensorflow() -> Any:
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    if "tensorflow" not in sys.modules:
        with _quiet():
            import tensorflow as tf

            tf.config.list_physical_devices()
    import tensorflow as tf

    return tf


@contextmanager
def _quiet() -> Iterator[None]:
    sys.stderr.flush()
    kept = os.dup(2)
    with tempfile.TemporaryFile() as held:
        os.dup2(held.fileno(), 2)
        try:
            yield
        finally:
            sys.stderr.flush()
            os.dup2(kept, 2)
            os.close(kept)
            held.seek(0)
            for line in held:
                if not _NOISE.fullmatch(line):
                    os.write(2, line)
