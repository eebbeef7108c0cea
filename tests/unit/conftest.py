"""Does, before the first test, what starts a process when a library is imported: a test in this folder starts none."""

import platform

import numpy.testing  # noqa: F401  # it runs lscpu

platform.processor()  # TensorFlow asks for it, which runs uname; the answer is kept
