"""Exit codes of the command line and their meanings."""

from __future__ import annotations

from enum import IntEnum


class Exit(IntEnum):
    """Exit code with its meaning; `docs/cli.md` shows both in a table."""

    meaning: str

    def __new__(cls, code: int, meaning: str) -> Exit:
        made = int.__new__(cls, code)
        made._value_ = code
        made.meaning = meaning
        return made

    DONE = 0, "Success: done; an awaited run registered a version, an awaited rollout was promoted, checked data is usable."
    NO = (
        1,
        (
            "Done, with a negative result: the run registered no version, the rollout was not promoted, the data would stop a run, "
            "the machine lacks a part, or you answered no."
        ),
    )
    WRONG = 2, "Invalid request, a retry does not help: a wrong word, file, name, token or role, or a state that does not allow the action."
    AWAY = (3, ("No usable answer: no platform, a timeout, a fault of the platform, or a fault of `eyas`. A retry may help."))
    INTERRUPTED = 130, "Interrupted by Ctrl-C or SIGTERM. Work that the platform has accepted continues there."
    UNREAD = 141, "The reader of the output has closed it, as `head` does."
