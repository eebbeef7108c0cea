"""Replaces itself with another program that dies with its parent.

    python -I shim.py [--private] PARENT_PID PROGRAM [ARGUMENT ...]

Without the shim a tritonserver or a training stage outlives a platform killed with -9, and keeps its ports, memory and place in the
store. The kernel sends the signal when the *thread* that forked ends, so parents fork from a thread that lives as long as they do. Uses
only the standard library and runs by its path, to start within milliseconds.
"""

from __future__ import annotations

import ctypes
import os
import signal
import struct
import sys

PR_SET_PDEATHSIG = 1
PR_SET_NO_NEW_PRIVS = 38
SECCOMP_SET_MODE_FILTER = 1
SECCOMP_FILTER_FLAG_SPEC_ALLOW = 4
_LOAD, _EQUAL, _RETURN = 0x20, 0x15, 0x06
_ALLOW, _SUCCESS = 0x7FFF0000, 0x00050000
_CALLS = {"x86_64": (0xC000003E, 317, 91), "aarch64": (0xC00000B7, 277, 52)}
"""By machine: the kernel's number of the architecture, and the numbers of the system calls `seccomp` and `fchmod`."""


def main() -> None:
    private = sys.argv[1] == "--private"
    arguments = sys.argv[2:] if private else sys.argv[1:]
    parent, command = int(arguments[0]), arguments[1:]
    libc = ctypes.CDLL(None, use_errno=True)
    if private and not _keep_umask(libc):
        sys.stderr.write("shared memory may be open to other users: this kernel takes no seccomp filter\n")
    if libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL) != 0:
        sys.exit(f"shim: prctl failed: {os.strerror(ctypes.get_errno())}")
    if os.getppid() != parent:  # it died before the signal was set, so no signal would come
        sys.exit("shim: its parent is gone")
    try:
        os.execvp(command[0], command)  # noqa: S606  the shim's purpose
    except OSError as error:
        sys.exit(f"shim: can't run {command[0]}: {error.strerror}")


def _keep_umask(libc: ctypes.CDLL) -> bool:
    """Makes fchmod do nothing in this program and its children: Boost opens its shared memory to all users with it, whatever the umask."""
    if os.uname().machine not in _CALLS:
        return False
    machine, seccomp, fchmod = _CALLS[os.uname().machine]
    steps = (
        (_LOAD, 0, 0, 4),  # load the architecture
        (_EQUAL, 0, 3, machine),
        (_LOAD, 0, 0, 0),  # load the number of the system call
        (_EQUAL, 0, 1, fchmod),
        (_RETURN, 0, 0, _SUCCESS),
        (_RETURN, 0, 0, _ALLOW),
    )
    code = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *step) for step in steps))
    program = ctypes.create_string_buffer(struct.pack("@HP", len(steps), ctypes.addressof(code)))
    off, on = ctypes.c_ulong(0), ctypes.c_ulong(1)
    if libc.prctl(PR_SET_NO_NEW_PRIVS, on, off, off, off) != 0:
        return False
    done: int = libc.syscall(ctypes.c_long(seccomp), SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_SPEC_ALLOW, program)
    return done == 0


if __name__ == "__main__":
    main()
