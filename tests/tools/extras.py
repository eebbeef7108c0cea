"""Installs the wheel with each extra into an empty environment, as a user does, and imports what it brings: `make release-check`."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

EXTRAS = {
    "": ("eyas.services.cli.main", "eyas.services.api.app"),
    "pipelines": ("polars", "onnxruntime", "eyas.pipelines.stages.etl", "eyas.pipelines.models.families"),
    "pipelines,tensorflow": ("tensorflow", "keras", "eyas.pipelines.models.neural.train"),
    "pipelines,torch": ("torch", "eyas.pipelines.models.neural.train"),
    "pipelines,jax": ("jax", "eyas.pipelines.models.neural.train"),
    "pipelines,trees": ("xgboost", "lightgbm", "sklearn", "eyas.pipelines.models.gbm"),
    "pipelines,lake": ("deltalake", "pyiceberg", "eyas.pipelines.data.delta", "eyas.pipelines.data.iceberg"),
    "ann": ("faiss", "eyas.services.index.quantised"),
    "pipelines,tune": ("optuna", "eyas.pipelines.trials.sampler"),
    "cluster": ("kubernetes", "nats", "psycopg", "redis", "eyas.services.executors.jobs"),
    "nvtabular": ("nvtabular", "eyas.pipelines.features.engines.nvtabular"),
}
OLD = frozenset({"nvtabular"})
"""Extras that need Python 3.11."""


def install(wheel: Path, extra: str, imports: tuple[str, ...], folder: Path) -> dict[str, object]:
    """Returns the figures of one extra; `fault` is the last line of an error."""
    python = folder / "venv/bin/python"
    subprocess.run([sys.executable, "-m", "venv", folder / "venv"], check=True)
    requirement = f"{wheel}[{extra}]" if extra else str(wheel)
    code = "import importlib; " + "; ".join(f"importlib.import_module({name!r})" for name in imports)
    began, fault = time.monotonic(), ""
    for command in (["-m", "pip", "install", "--quiet", "--disable-pip-version-check", requirement], ["-W", "ignore", "-c", code]):
        done = subprocess.run([python, *command], capture_output=True, text=True, check=False, cwd=folder)
        if done.returncode:
            fault = (done.stderr or done.stdout).strip().splitlines()[-1]
            break
    seconds = time.monotonic() - began
    size = sum(path.lstat().st_size for path in (folder / "venv").rglob("*") if path.is_file())
    packages = len(list((folder / "venv").glob("lib/*/site-packages/*.dist-info"))) - 1  # not pip
    return {"extra": extra, "mb": round(size / 1e6), "packages": packages, "seconds": round(seconds), "fault": fault}


def main() -> int:
    wheels = list(Path("var/release").absolute().glob("*.whl"))
    if len(wheels) != 1:
        sys.stderr.write("var/release has no wheel: run make release\n")
        return 2
    console, rows = Console(), []
    for extra, imports in EXTRAS.items():
        if extra in OLD and sys.version_info[:2] != (3, 11):
            console.print(f"{extra}: needs Python 3.11, not tried")
            continue
        with tempfile.TemporaryDirectory(prefix="eyas-extra-") as folder:
            rows.append(install(wheels[0], extra, imports, Path(folder)))
        console.print(f"{extra or 'none'}: {rows[-1]}")
    table = Table("extra", "MB", "packages", "seconds", "fault", title=f"{wheels[0].name} on Python {sys.version.split()[0]}")
    for row in rows:
        table.add_row(*(str(value) for value in row.values()))
    console.print(table)
    Path("var/release/extras.json").write_text(json.dumps(rows, indent=1))
    return 1 if any(row["fault"] for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
