"""Installs each wheel into an empty environment, as a user does, that of eyas with each extra, and imports it: `make release-check`."""

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
    "polars-gpu": ("cudf_polars", "eyas.pipelines.stages.etl"),
}
CLIENT = "eyas-client"
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
    wheels = sorted(Path("var/release").absolute().glob("*.whl"))
    if [wheel.name.split("-")[0] for wheel in wheels] != ["eyas", "eyas_client"]:
        sys.stderr.write("var/release does not have one wheel of eyas and one of eyas-client: run make release\n")
        return 2
    eyas, client = wheels
    console, rows = Console(), []
    with tempfile.TemporaryDirectory(prefix="eyas-client-") as folder:
        rows.append({**install(client, "", ("eyas_client",), Path(folder)), "extra": CLIENT})
    console.print(f"{CLIENT}: {rows[-1]}")
    for extra, imports in EXTRAS.items():
        if extra in OLD and sys.version_info[:2] != (3, 11):
            console.print(f"{extra}: needs Python 3.11, not tried")
            continue
        with tempfile.TemporaryDirectory(prefix="eyas-extra-") as folder:
            rows.append(install(eyas, extra, imports, Path(folder)))
        console.print(f"{extra or 'none'}: {rows[-1]}")
    table = Table("extra", "MB", "packages", "seconds", "fault", title=f"{eyas.name} on Python {sys.version.split()[0]}")
    for row in rows:
        table.add_row(*(str(value) for value in row.values()))
    console.print(table)
    Path("var/release/extras.json").write_text(json.dumps(rows, indent=1))
    return 1 if any(row["fault"] for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
