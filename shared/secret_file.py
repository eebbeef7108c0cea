"""Reads a file with a secret: a token, a password, URLs with passwords."""

from __future__ import annotations

import logging
import os
import shlex
from pathlib import Path

from shared.domain.errors import Invalid

log = logging.getLogger(__name__)

_OTHERS = 0o007
_GROUP = 0o070


def read_secret_file(path: Path) -> str:
    """Raises Invalid if the file cannot be read, or if other users can open it.

    Members of the file's group may open it: Kubernetes mounts a Secret owned by root, with the group `fsGroup`. A group of a file with
    another owner is logged as a warning.
    """
    try:
        with path.open() as stream:
            state, text = os.fstat(stream.fileno()), stream.read()
    except (OSError, UnicodeDecodeError) as error:
        raise Invalid(f"{path}: cannot be read: {error.strerror if isinstance(error, OSError) else 'not text'}") from None
    mode = f"{state.st_mode & 0o777:04o}"
    if state.st_mode & _OTHERS:
        raise Invalid(f"secret file {path}: other users can open it (mode {mode}); run: chmod 600 {shlex.quote(str(path))}")
    if state.st_mode & _GROUP and state.st_uid != 0:
        log.warning("secret file: its group can open it path=%s mode=%s", path, mode)
    return text
