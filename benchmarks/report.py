"""One form for all benchmarks: a table for people, `var/bench/NAME.json` for everything else."""

from __future__ import annotations

import json
import os
import platform
import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
from rich.console import Console
from rich.table import Table


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
    """What is to be known of it, beside it."""

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


def machine() -> dict[str, Any]:
    return {
        "cpu": platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "system": platform.platform(),
        "python": platform.python_version(),
    }


def publish(bench: str, rows: Sequence[Row], folder: Path = Path("var/bench"), **more: Any) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    documents = [row.document() for row in rows]
    path = folder / f"{bench}.json"
    path.write_text(json.dumps({"bench": bench, "machine": machine(), "rows": documents, **more}, indent=1))
    notes = ["note"] if any(row.note for row in rows) else []
    table = Table("case", "contender", "metric", "median", "min", "max", "unit", "runs", *notes, title=bench)
    for one in documents:
        numbers = [f"{one[key]:,.3g}" if abs(one[key]) < 1000 else f"{one[key]:,.0f}" for key in ("value", "min", "max")]
        note = [one.get("note", "")] if notes else []
        table.add_row(one["case"], one["contender"], one["metric"], *numbers, one["unit"], str(one["runs"]), *note)
    console = Console(width=max(180 if notes else 120, Console().width))
    console.print(table)
    console.print(f"written to {path}")
    return path


def exit_code(missed: Sequence[str]) -> int:
    """Prints the promises that a benchmark missed; returns 1 if there are any."""
    for promise in missed:
        sys.stderr.write(f"promise missed: {promise}\n")
    return 1 if missed else 0


def peak(pid: int) -> float:
    """MiB: the kernel's own high-water mark of resident memory."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0.0
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM")), 0.0)
