"""Harness of all benchmarks: options from a signature, progress, a table for people, `var/bench/NAME.json` for everything else.

    @benchmark("ann")
    def ann(sizes: Annotated[Sequence[int], "items of the catalogues"] = (60_000,), seed: int = 1) -> Iterator[Outcome]:
        yield Row("60,000 items", "eyas", "time of a search", "ms", seconds)

    if __name__ == "__main__":
        ann()

The function yields a `Row` per figure, `Missed` for a promise that the figures break, `Fields` for further fields of the JSON. Each row is
printed as soon as it is measured; the exit status is 1 if a promise is missed. `ann.measure` is the function itself. The help
is the docstring of the function, or else of its module. A sequence takes several words, `--sizes 10 20`, and numbers also with commas.
"""

from __future__ import annotations

import argparse
import inspect
import itertools
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Generic, Literal, ParamSpec, Protocol, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np
import psutil
from rich.console import Console
from rich.table import Table

from shared.testing.threads import Threads

P = ParamSpec("P")
T = TypeVar("T")
FOLDER = Path("var/bench")
WRITE_EVERY = 10.0
"""Seconds, so that a benchmark that is ended early leaves its figures."""
HIDDEN = argparse.SUPPRESS
"""The help of an option for the benchmark's own child processes."""


@dataclass(frozen=True)
class Row:
    """One figure: the median of its runs, with their spread."""

    case: str
    contender: str
    metric: str
    unit: str
    values: Sequence[float]
    ratio_to: Mapping[str, float] = field(default_factory=dict)
    note: str = ""
    """What limits the figure or explains it."""

    def document(self) -> dict[str, Any]:
        return {
            "case": self.case,
            "contender": self.contender,
            "metric": self.metric,
            "value": statistics.median(self.values),
            "unit": self.unit,
            "runs": len(self.values),
            "min": min(self.values),
            "max": max(self.values),
            "ratio_to": dict(self.ratio_to),
            **({"note": self.note} if self.note else {}),
        }


class Figures:
    """Values of one case that are measured round by round."""

    def __init__(self, case: str) -> None:
        self.case = case
        self._values: dict[tuple[str, str, str], list[float]] = defaultdict(list)

    def add(self, contender: str, metric: str, unit: str, value: float) -> None:
        self._values[contender, metric, unit].append(value)

    def rows(self) -> Iterator[Row]:
        for (contender, metric, unit), values in self._values.items():
            yield Row(self.case, contender, metric, unit, values)

    def ratios(self, contender: str, reference: str, metric: str, unit: str, label: str) -> Row:
        """Compares the values of the same round."""
        pairs = zip(self._values[contender, metric, unit], self._values[reference, metric, unit], strict=True)
        return Row(self.case, contender, label, "x", [value / other for value, other in pairs])


@dataclass(frozen=True)
class Missed:
    """A promise of the product that a figure breaks."""

    promise: str


class Fields(dict[str, Any]):
    """Further fields of the JSON. `bench` names the file otherwise."""


Outcome = Row | Missed | Fields


class Benchmark(Generic[P]):
    """A benchmark as a program. Calling it reads the command line, measures and ends the process."""

    def __init__(
        self, name: str, measure: Callable[P, Iterable[Outcome]], promises: Callable[[Sequence[Row]], Sequence[str]] | None
    ) -> None:
        self.name, self.measure, self._promises = name, measure, promises

    def __call__(self, words: Sequence[str] | None = None) -> None:
        raise SystemExit(self.run(words))

    def run(self, words: Sequence[str] | None = None) -> int:
        """Measures with the options of a command line; returns the exit status."""
        rows: list[Row] = []
        missed: list[str] = []
        fields: dict[str, Any] = {"bench": self.name}
        written = time.monotonic()
        for outcome in self.measure(**read_options(self.measure, words)):  # type: ignore[call-arg]
            match outcome:
                case Missed(promise):
                    missed.append(promise)
                case Row() as row:
                    rows.append(row)
                    say(
                        f"{row.case}: {row.contender}: {row.metric} {_number(statistics.median(row.values))} {row.unit} {row.note}".rstrip()
                    )
                case _:
                    fields |= outcome
            if time.monotonic() - written > WRITE_EVERY:
                written = time.monotonic()
                write(rows, **fields)
        path = publish(fields.pop("bench"), rows, **fields)
        if self._promises is not None:
            missed += self._promises(rows)
        for promise in missed:
            sys.stderr.write(f"promise missed: {promise}; see {path}\n")
        return 1 if missed else 0


def benchmark(
    name: str, promises: Callable[[Sequence[Row]], Sequence[str]] | None = None
) -> Callable[[Callable[P, Iterable[Outcome]]], Benchmark[P]]:
    """Makes a program of a function that yields outcomes. `promises` names the promises that all rows together break."""
    return lambda measure: Benchmark(name, measure, promises)


def read_options(function: Callable[..., Any], words: Sequence[str] | None) -> dict[str, Any]:
    """Parses a command line into arguments of a function. A string in a parameter's `Annotated` is its help, a list its allowed values."""
    text = inspect.getdoc(function) or sys.modules[function.__module__].__doc__
    parser = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    hints = get_type_hints(function, include_extras=True)
    for name, parameter in inspect.signature(function).parameters.items():
        options = _argument(hints[name], parameter.default)
        parser.add_argument("--" + name.replace("_", "-"), **options)
    return vars(parser.parse_args(words))


def _argument(hint: Any, default: Any) -> dict[str, Any]:
    """Returns the options of `add_argument` for a parameter."""
    kind, *extras = get_args(hint) if get_origin(hint) is Annotated else (hint,)
    if get_origin(kind) in (UnionType, Union):
        kind = next(part for part in get_args(kind) if part is not NoneType)
    text = next((extra for extra in extras if isinstance(extra, str)), None)
    options: dict[str, Any] = {"required": True} if default is inspect.Parameter.empty else {"default": default}
    if text is not HIDDEN and not (default in (None, "", (), inspect.Parameter.empty) or isinstance(default, bool)):
        shown = " ".join(map(str, default)) if isinstance(default, list | tuple) else default
        text = f"{text or ''} ({shown})".strip()
    options["help"] = text if text is HIDDEN or text is None else text.replace("%", "%%")
    if kind is bool:
        return options | {"action": argparse.BooleanOptionalAction if default is True else "store_true"}
    if get_origin(kind) is tuple:
        return options | {"nargs": len(get_args(kind))}
    is_list = get_origin(kind) in (list, Sequence)
    kind = get_args(kind)[0] if is_list else kind
    choices = (
        get_args(kind) if get_origin(kind) is Literal else next((tuple(extra) for extra in extras if not isinstance(extra, str)), None)
    )
    kind = type(choices[0]) if choices else kind
    if is_list and kind in (int, float):

        def numbers(word: str) -> list[float]:
            return [kind(part) for part in word.split(",") if part]

        return options | {"nargs": "*", "type": numbers, "action": _Flattened}
    return options | {"type": kind, "choices": choices} | ({"nargs": "*"} if is_list else {})


class _Flattened(argparse.Action):
    def __call__(self, parser: Any, namespace: argparse.Namespace, values: Any, option_string: str | None = None) -> None:
        setattr(namespace, self.dest, list(itertools.chain.from_iterable(values)))


def say(text: str) -> None:
    """Prints a line of progress at once, with the time of day."""
    sys.stdout.write(f"{time.strftime('%H:%M:%S')} {text}\n")
    sys.stdout.flush()


def machine() -> dict[str, Any]:
    return {
        "cpu": platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "system": platform.platform(),
        "python": platform.python_version(),
    }


def write(rows: Sequence[Row], bench: str, **more: Any) -> Path:
    FOLDER.mkdir(parents=True, exist_ok=True)
    path = FOLDER / f"{bench}.json"
    path.write_text(json.dumps({"bench": bench, "machine": machine(), "rows": [row.document() for row in rows], **more}, indent=1))
    return path


def publish(bench: str, rows: Sequence[Row], **more: Any) -> Path:
    """Writes the JSON and prints the table."""
    path = write(rows, bench, **more)
    notes = ["note"] if any(row.note for row in rows) else []
    table = Table("case", "contender", "metric", "median", "min", "max", "unit", "runs", *notes, title=bench)
    for row in rows:
        numbers = [_number(value) for value in (statistics.median(row.values), min(row.values), max(row.values))]
        table.add_row(row.case, row.contender, row.metric, *numbers, row.unit, str(len(row.values)), *([row.note] if notes else []))
    console = Console(width=max(180 if notes else 120, Console().width))
    console.print(table)
    console.print(f"written to {path}")
    return path


def _number(value: float) -> str:
    return f"{value:,.3g}" if abs(value) < 1000 else f"{value:,.0f}"


@contextmanager
def scratch(on_disk: bool = False) -> Iterator[Path]:
    """An empty folder, removed at the end; with `on_disk` beside the results, where /tmp may be memory."""
    if on_disk:
        FOLDER.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="eyas-bench-", dir=FOLDER.absolute() if on_disk else None) as folder:
        yield Path(folder)


def turns(contenders: Iterable[T], rounds: int) -> Iterator[T]:
    """Each contender once a round, in the other order in every second round: none has the advantage of a later place."""
    order = list(contenders)
    for number in range(rounds):
        yield from order[::-1] if number % 2 else order


def alternate(contenders: Mapping[str, Callable[[], T]], rounds: int) -> dict[str, list[T]]:
    """Runs the contenders in turns; returns the results of each, in the order of the contenders."""
    results: dict[str, list[T]] = {name: [] for name in contenders}
    for name in turns(contenders, rounds):
        results[name].append(contenders[name]())
    return results


def timed(work: Callable[[], T]) -> tuple[float, T]:
    """Returns the seconds of a call, and its result."""
    began = time.perf_counter()
    result = work()
    return time.perf_counter() - began, result


def until(condition: str, probe: Callable[[], T | None], seconds: float = 60, pause: float = 0.02) -> T:
    """Waits for a true value and returns it; SystemExit names the condition after so many seconds."""
    end = time.monotonic() + seconds
    while not (value := probe()):
        if time.monotonic() > end:
            raise SystemExit(f"{condition}: not within {seconds:g} s")
        time.sleep(pause)
    return value


def seconds_of(work: Callable[[], object], runs: int) -> list[float]:
    """Returns the seconds of each of so many calls."""
    return [timed(work)[0] for _ in range(runs)]


def percentiles(values: Sequence[float], *shares: float, scale: float = 1.0) -> dict[str, float]:
    """Returns the percentiles by their names, such as `p50`; infinity if there are no values."""
    points = np.percentile(values, shares) if len(values) else np.full(len(shares), np.inf)
    return {f"p{share:g}": float(point) * scale for share, point in zip(shares, points, strict=True)}


def latencies(case: str, contender: str, seconds: Sequence[float], *shares: float, metric: str = "latency, {}") -> Iterator[Row]:
    """Rows of percentiles in milliseconds."""
    for name, value in percentiles(seconds, *shares, scale=1000).items():
        yield Row(case, contender, metric.format(name), "ms", [value])


class Peak(Threads):
    """The highest value of a figure while the context is open, read ten times a second."""

    def __init__(self, read: Callable[[], float], every: float = 0.1) -> None:
        super().__init__(self._sample)
        self._read, self._every = read, every
        self.value = read()

    def _sample(self) -> None:
        while not self.over.wait(self._every):
            self.value = max(self.value, self._read())


def memory(pid: int, name: str = "VmHWM", file: str = "status") -> float:
    """Returns MiB out of /proc: by default the kernel's own high-water mark of resident memory; 0 if the process is gone."""
    try:
        lines = Path(f"/proc/{pid}/{file}").read_text().splitlines()
    except OSError:
        return 0.0
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith(f"{name}:")), 0.0)


def family(pid: int) -> list[psutil.Process]:
    """Returns a process and its descendants, or nothing if it is gone."""
    try:
        process = psutil.Process(pid)
        return [process, *process.children(recursive=True)]
    except psutil.Error:
        return []


def cpu_seconds(processes: Iterable[psutil.Process]) -> float:
    """Returns user and system seconds of the processes that still run."""
    total = 0.0
    for process in processes:
        with suppress(psutil.Error):
            total += sum(process.cpu_times()[:2])
    return total


@dataclass(frozen=True)
class Watched:
    """What a child process printed and used. Memory in MiB."""

    document: dict[str, Any]
    """JSON of the last line of its output; empty if there is none."""
    seconds: float
    cpu: float
    """Seconds of CPU, with those of its own children."""
    peak: float
    """The highest resident memory of the child or of one of its children; its last milliseconds are not sampled."""
    anonymous: float
    """The most memory without a file behind it, of the samples."""
    family: float
    """With children: the most of all together, shared pages counted once, of the samples; else 0."""


def watched(command: Sequence[str], folder: Path | None = None, **variables: str) -> Watched:
    """Runs a child process to its end and samples its memory; SystemExit with its errors if it fails."""
    env = {**os.environ, "PYTHONWARNINGS": "ignore", "PYTHONPATH": str(Path(__file__).parents[1]), "TF_CPP_MIN_LOG_LEVEL": "3", **variables}
    highest = anonymous = together = 0.0
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
        began = time.perf_counter()
        process = subprocess.Popen(command, stdout=output, stderr=errors, env=env, text=True, cwd=folder)  # noqa: S603
        while not (ended := os.wait4(process.pid, os.WNOHANG))[0]:
            processes = family(process.pid)
            highest = max([highest, *(memory(member.pid) for member in processes)])
            anonymous = max(anonymous, memory(process.pid, "RssAnon") + memory(process.pid, "RssShmem"))
            if len(processes) > 1:
                together = max(together, sum(memory(member.pid, "Pss", "smaps_rollup") for member in processes))
            time.sleep(0.02)
        seconds = time.perf_counter() - began
        process.returncode = os.waitstatus_to_exitcode(ended[1])
        output.seek(0)
        errors.seek(0)
        if process.returncode != 0:
            raise SystemExit(f"{' '.join(command)} ended with {process.returncode}:\n{errors.read()[-2000:]}")
        lines = output.read().strip().splitlines()
    document = json.loads(lines[-1]) if lines and lines[-1].startswith("{") else {}
    used = ended[2]
    return Watched(document, seconds, used.ru_utime + used.ru_stime, highest, anonymous, together)


def environment(name: str, *pins: str) -> Path:
    """Returns the Python of a virtual environment in var/bench, made on first use for contenders that are no dependency of the project."""
    home = (FOLDER / name).absolute()
    python = home / "bin" / "python"
    if not python.exists():
        say(f"installing {', '.join(pins)} into {home}")
        uv = shutil.which("uv", path=str(Path(sys.executable).parent)) or "uv"
        subprocess.run([uv, "venv", "--quiet", "--seed", "--clear", "--python", sys.executable, str(home)], check=True)  # noqa: S603
        subprocess.run([uv, "pip", "install", "--quiet", "--python", str(python), *pins], check=True)  # noqa: S603
    return python


class NewDatabase(Protocol):
    def __call__(self, kind: str, migrated: bool = False) -> str: ...


@contextmanager
def databases(durable: bool = True) -> Iterator[NewDatabase]:
    """Makes empty databases, `sqlite` or `postgresql`, and returns their URLs. PostgreSQL starts when it is first needed.

    With `durable` PostgreSQL writes to the disk what it has promised, as in production.
    """
    from services.store.engine import open_engine, sqlite_url
    from services.store.migrate import upgrade
    from tests.servers.postgres_server import Server, postgres_server

    numbers = itertools.count()
    servers: list[Server] = []
    with scratch() as folder, ExitStack() as undo:

        def new(kind: str, migrated: bool = False) -> str:
            if kind.lower() == "postgresql":
                if not servers:
                    servers.append(undo.enter_context(postgres_server(durable=durable)))
                return servers[0].new_database(migrated=migrated)
            url = sqlite_url(folder / f"{next(numbers)}.db")
            if migrated:
                engine = open_engine(url)
                upgrade(engine)
                engine.dispose()
            return url

        yield new
