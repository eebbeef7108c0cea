"""Reads a file that holds a secret: a token, a password, URLs with passwords."""

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

    Members of the file's group may: Kubernetes mounts a Secret as root's, for the group that `fsGroup` names. A group of a file that is
    not root's is warned of.
    """
    try:
        with path.open() as stream:
            state, text = os.fstat(stream.fileno()), stream.read()
    except (OSError, UnicodeDecodeError) as error:
        raise Invalid(f"{path} can't be read: {error.strerror if isinstance(error, OSError) else 'it is not text'}") from None
    mode = f"{state.st_mode & 0o777:04o}"
    if state.st_mode & _OTHERS:
        raise Invalid(f"other users can open a file with a secret: {path} has mode {mode}; run: chmod 600 {shlex.quote(str(path))}")
    if state.st_mode & _GROUP and state.st_uid != 0:
        log.warning("secret file: its group can open it path=%s mode=%s", path, mode)
    return text
