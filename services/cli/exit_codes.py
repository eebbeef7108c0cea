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

    DONE = 0, "Done. What was waited for ended well: the run registered a version, the rollout was promoted, the data may be used."
    NO = (
        1,
        (
            "Done, and the answer is no: the run registered nothing, the rollout wasn't promoted, the data would stop a run, "
            "the machine lacks a part, or you said no."
        ),
    )
    WRONG = 2, "What was asked is wrong, and asking again won't help: a word, a file, a name, the token, its role, or what a state allows."
    AWAY = (
        3,
        (
            "No usable answer: no platform there, none in time, a fault of the platform's own, or one of `eyas` itself. "
            "Asking again may help."
        ),
    )
    INTERRUPTED = 130, "Ctrl-C, or a watched picture was told to end (SIGTERM). What it had asked of the platform goes on there."
    UNREAD = 141, "Whoever read what it writes has gone, as `head` does."
