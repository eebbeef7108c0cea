"""Entry point of a stage in a pod: fetches and checks its spec.json from the artifact store, and executes the stage.

    python -m shared.pod --module pipelines.stages.etl --artifacts URL --spec SHA256:SIZE --scratch FOLDER

The control plane builds the command; the stage's module reads spec.json as usual.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from pathlib import Path

from shared.artifacts import FsspecArtifacts
from shared.contracts.stage import File
from shared.contracts.strict import read
from shared.domain.errors import EyasError

_MODULE = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m shared.pod")
    parser.add_argument("--module", required=True, help="Python module of the stage")
    parser.add_argument("--artifacts", required=True, help="URL of the artifact store")
    parser.add_argument("--spec", required=True, help="SHA256:SIZE of the attempt's spec.json in the artifact store")
    parser.add_argument("--scratch", required=True, type=Path, help="empty folder with write access")
    args = parser.parse_args()
    if not _MODULE.fullmatch(args.module):
        parser.error(f"--module: {args.module!r} is not a module name")
    os.umask(0o077)  # the same mask as for stages of the local executor
    sha256, _, size = args.spec.partition(":")
    try:
        path = FsspecArtifacts(args.artifacts).fetch(read(File, {"sha256": sha256, "size": size}, "--spec"), args.scratch / "spec.json")
    except (EyasError, OSError) as error:
        sys.exit(f"pod: the stage's spec cannot be fetched: {' '.join(str(error).split())}")
    os.chdir(args.scratch)
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, "-P", "-m", args.module, "--spec", str(path.absolute())])  # noqa: S606  ours, checked above


if __name__ == "__main__":
    main()
