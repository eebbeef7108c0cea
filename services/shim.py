"""Becomes another program that dies with whoever started it.

    python -I shim.py PARENT_PID PROGRAM [ARGUMENT ...]

Without it a tritonserver or a training stage outlives a platform that was killed with -9, and keeps its ports, its memory
and its place in the store. The kernel sends the signal when the *thread* that forked ends, so starters fork from a thread
that lives as long as they do. Standard library alone, and run by its path: it must start in milliseconds and import nothing of ours.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main() -> None:
    parent, command = int(sys.argv[1]), sys.argv[2:]
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL) != 0:
        sys.exit(f"shim: prctl failed: {os.strerror(ctypes.get_errno())}")
    if os.getppid() != parent:  # it died before the signal was set, and nothing would ever be sent
        sys.exit("shim: its parent is gone")
    try:
        os.execvp(command[0], command)  # noqa: S606  becoming another program is what it is for
    except OSError as error:
        sys.exit(f"shim: can't run {command[0]}: {error.strerror}")


if __name__ == "__main__":
    main()
