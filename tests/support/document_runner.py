"""Runs what a document shows, in its order, in a copy of the repository, and holds what is printed against what the document says.

What a block is, the words behind its fence say:

- `console`: lines that begin with `$ ` are commands (`> ` goes on), the lines below one are what it prints. `...` stands for any part of a
  line, alone on a line for any lines; a command with nothing below it prints nothing. It ends with 0.
- `console fails`: its last command doesn't end with 0.
- `console stays`: one command in a terminal of its own, that stays open; the next block comes when that much was printed.
- `console again`: one command, given again until it prints that.
- `console unrun`: not run, unless asked for; of `make` it is looked at whether there is such a target.
- `yaml FILE`, or any other language with a name behind: the file is written.
- `text`: nothing is done with it. A block that is none of these is a fault.

`python -m tests.support.document_runner FILE` runs one; `--everything` also what is `unrun`.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from markdown_it import MarkdownIt

from shared.domain.errors import EyasError

ROOT = Path(__file__).parents[2]
KINDS = ("", "fails", "stays", "again", "unrun")
_LEFT = shutil.ignore_patterns(".git", ".venv*", "var", "__pycache__", ".*_cache", ".hypothesis", "*.egg-info", "dist", "build")


class Broken(EyasError):
    """A document that doesn't say what happens."""


@dataclass(frozen=True)
class Command:
    place: str
    text: str
    prints: tuple[str, ...]


@dataclass(frozen=True)
class Block:
    place: str
    kind: str
    commands: tuple[Command, ...] = ()
    file: str = ""
    content: str = ""


def blocks(text: str, name: str) -> list[Block]:
    return [
        _block(f"{name}:{one.map[0] + 1}", one.info, one.content) for one in MarkdownIt().parse(text) if one.type == "fence" and one.map
    ]


def _block(place: str, info: str, content: str) -> Block:
    language, _, rest = info.strip().partition(" ")
    if language == "console":
        if rest not in KINDS:
            raise Broken(f"{place}: a block says 'console {rest}': known are {', '.join(KINDS[1:])}")
        commands = tuple(_commands(place, content))
        if rest in ("stays", "again") and len(commands) != 1:
            raise Broken(f"{place}: '{rest}' is for one command, here are {len(commands)}")
        return Block(place, rest, commands)
    if language and rest:
        return Block(place, "file", file=rest, content=content)
    if language != "text":
        raise Broken(f"{place}: a block says neither that it is a console nor a file's name nor 'text'")
    return Block(place, "text")


def _commands(place: str, content: str) -> Iterator[Command]:
    name, _, begin = place.rpartition(":")
    text, prints, at = "", [], 0
    for number, line in enumerate(content.splitlines(), int(begin) + 1):
        if line.startswith("$ "):
            if text:
                yield Command(f"{name}:{at}", text, tuple(prints))
            text, prints, at = line[2:], [], number
        elif not text:
            raise Broken(f"{name}:{number}: stands before the first command: {line}")
        elif line.startswith("> ") and not prints:
            text += "\n" + line[2:]
        else:
            prints.append(line)
    if not text:
        raise Broken(f"{place}: a console without a command")
    yield Command(f"{name}:{at}", text, tuple(prints))


def says(prints: tuple[str, ...], printed: str, whole: bool = True) -> bool:
    """Whether a command printed what the document shows; columns may be wider or narrower than the document has them."""
    lines = printed.removesuffix("\n").split("\n") if printed else []
    ends = {0}  # after how many printed lines the part of the document that was read so far may end
    for line in prints:
        if line.strip() == "...":
            ends = set(range(min(ends, default=len(lines) + 1), len(lines) + 1))
        else:
            shown = _line(line)
            ends = {end + 1 for end in ends if end < len(lines) and shown.fullmatch(lines[end])}
    return len(lines) in ends if whole else bool(ends)


def _line(shown: str) -> re.Pattern[str]:
    """Each `...` is atomic (it never tries a second place), so that a line that doesn't fit is refused at once."""
    parts = [r"[ ]+".join(re.escape(word) for word in re.split(r" +", part)) for part in shown.rstrip().split("...")]
    inner = "".join(f"(?>.*?{part})" for part in parts[1:-1])
    return re.compile(parts[0] + inner + (f".*?{parts[-1]}" if len(parts) > 1 else "") + "[ ]*")


def copy(folder: Path) -> Path:
    """The repository as a clone has it, set up: with an environment of its own made of links, so that nothing is fetched."""
    shutil.copytree(ROOT, folder, ignore=lambda at, names: {*_LEFT(at, names), *({"data"} if Path(at) == ROOT else ())})
    (folder / ".venv/bin").mkdir(parents=True)
    for part in ("lib", "eyas-triton"):
        (folder / ".venv" / part).symlink_to(Path(sys.prefix, part))
    shutil.copy(Path(sys.prefix, "pyvenv.cfg"), folder / ".venv")
    for one in Path(sys.prefix, "bin").iterdir():
        if one.name != "eyas":
            (folder / ".venv/bin" / one.name).symlink_to(one)
    script = "import sys; sys.argv[0] = 'eyas'; from services.cli.main import main; main()"
    (folder / ".venv/bin/eyas").write_text(f'#!/bin/sh\nexec "{folder}/.venv/bin/python" -c "{script}" "$@"\n')
    (folder / ".venv/bin/eyas").chmod(0o755)
    (folder / ".venv/.ready").touch()
    return folder


@dataclass
class Terminal:
    """A command that stays open, and where its output goes."""

    command: Command
    process: subprocess.Popen[bytes]
    log: Path

    def printed(self) -> str:
        return self.log.read_text(errors="replace")


@dataclass
class Reader:
    """Who follows a document: one shell, and terminals beside it. `seconds` is what one command may take."""

    folder: Path
    everything: bool = False
    seconds: float = 120
    ran: int = 0
    terminals: list[Terminal] = field(default_factory=list)

    def __enter__(self) -> Reader:
        self._environment = {name: value for name, value in os.environ.items() if not name.startswith(("EYAS_", "MAKE", "VIRTUAL_ENV"))}
        self._environment |= {"PYTHONPATH": str(self.folder), "TF_CPP_MIN_LOG_LEVEL": "2", "COLUMNS": "1000"}
        self._shell = subprocess.Popen(
            ["bash", "--noprofile", "--norc"],
            cwd=self.folder,
            env=self._environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        for one in reversed(self.terminals):
            if one.process.poll() is None:
                os.killpg(one.process.pid, signal.SIGINT)
        stuck = [one for one in self.terminals if not _ended(one.process)]
        assert self._shell.stdin is not None
        self._shell.stdin.close()
        if not _ended(self._shell, 5):
            os.killpg(self._shell.pid, signal.SIGKILL)
        assert self._shell.stdout is not None
        self._shell.stdout.close()
        if kind is None and stuck:
            raise Broken(f"{stuck[0].command.place}: Ctrl-C didn't end: {stuck[0].command.text}")

    def follow(self, found: list[Block]) -> None:
        for one in found:
            self.ran += len(one.commands) if self.everything or one.kind != "unrun" else 0
            if one.kind == "file":
                self._write(one)
            elif one.kind == "stays":
                self._open(one.commands[0])
            elif one.kind == "again":
                self._again(one.commands[0])
            else:
                for number, command in enumerate(one.commands, 1):
                    self._one(command, one.kind, last=number == len(one.commands))
            self._look()

    def _look(self) -> None:
        for one in self.terminals:
            if one.process.poll():
                raise Broken(f"{one.command.place}: it ended with {one.process.returncode}:\n{one.printed()}")

    def _one(self, command: Command, kind: str, last: bool) -> None:
        if kind == "unrun" and not self.everything:
            words = shlex.split(command.text, comments=True)
            if words[0] != "make":
                return
            command = Command(command.place, f"make --dry-run {shlex.join(words[1:])}", ("...",))
        code, printed = self._run(command)
        if (code != 0) != (kind == "fails" and last):
            raise Broken(f"{command.place}: it ended with {code}: {command.text}\n{printed}")
        if not says(command.prints, printed):
            raise Broken(f"{command.place}: {command.text}\nprinted:\n{printed}\nthe document says:\n" + "\n".join(command.prints))

    def _again(self, command: Command) -> None:
        end = time.monotonic() + self.seconds
        while True:
            code, printed = self._run(command)
            if code == 0 and says(command.prints, printed):
                return
            self._look()
            if time.monotonic() > end:
                raise Broken(
                    f"{command.place}: {command.text}\nprinted at last:\n{printed}\nthe document says:\n" + "\n".join(command.prints)
                )
            time.sleep(0.2)

    def _run(self, command: Command) -> tuple[int, str]:
        assert self._shell.stdin is not None and self._shell.stdout is not None
        mark = f"ended-{os.urandom(8).hex()}"
        self._shell.stdin.write(f"{{ {command.text}\n}} </dev/null\nprintf '\\n%s %s\\n' {mark} $?\n")
        self._shell.stdin.flush()
        late = threading.Timer(self.seconds, os.killpg, (self._shell.pid, signal.SIGKILL))
        late.start()
        printed = []
        try:
            for line in self._shell.stdout:
                if line.startswith(mark):
                    return int(line.split()[1]), "".join(printed).removesuffix("\n")
                printed.append(line)
        finally:
            late.cancel()
        raise Broken(f"{command.place}: no end within {self.seconds:g} s, or it ended the shell: {command.text}\n{''.join(printed)}")

    def _open(self, command: Command) -> None:
        log = self.folder.parent / f"{self.folder.name}-terminal-{len(self.terminals)}.log"
        with log.open("wb") as out:
            process = subprocess.Popen(
                ["bash", "--noprofile", "--norc", "-c", command.text],
                cwd=self.folder,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        opened = Terminal(command, process, log)
        self.terminals.append(opened)
        end = time.monotonic() + self.seconds
        while not says(command.prints, opened.printed(), whole=False):
            if process.poll() is not None or time.monotonic() > end:
                raise Broken(
                    f"{command.place}: {command.text}\nprinted:\n{opened.printed()}\nthe document says:\n" + "\n".join(command.prints)
                )
            time.sleep(0.05)

    def _write(self, block: Block) -> None:
        path = (self.folder / block.file).resolve()
        if not path.is_relative_to(self.folder.resolve()):
            raise Broken(f"{block.place}: {block.file} lies outside")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(block.content)


def _ended(process: subprocess.Popen[bytes] | subprocess.Popen[str], seconds: float = 60) -> bool:
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        return False
    return True


def main(arguments: list[str]) -> int:
    (name,) = (one for one in arguments if one != "--everything")
    began = time.monotonic()
    with (
        tempfile.TemporaryDirectory() as folder,
        Reader(
            copy(Path(folder, "eyas")), everything="--everything" in arguments, seconds=2 * 3600 if "--everything" in arguments else 240
        ) as reader,
    ):
        try:
            reader.follow(blocks((ROOT / name).read_text(), name))
        except Broken as fault:
            sys.stderr.write(f"{fault}\n")
            return 1
    sys.stdout.write(f"{name}: {reader.ran} commands as they stand, {time.monotonic() - began:.0f} s\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
