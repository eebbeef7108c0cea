"""`eyas` with the names of its threads shown by the operating system, for measurements from outside. Run by its path."""

from __future__ import annotations

import ctypes
import threading

_PR_SET_NAME = 15


def name_threads() -> None:
    """Every thread that starts from now on: Python 3.11 keeps their names to itself."""
    libc = ctypes.CDLL(None)
    run = threading.Thread.run

    def named(thread: threading.Thread) -> None:
        libc.prctl(_PR_SET_NAME, thread.name.encode()[:15], 0, 0, 0)
        run(thread)

    threading.Thread.run = named  # type: ignore[method-assign, assignment]


if __name__ == "__main__":
    from services.cli.main import main

    name_threads()
    main()
