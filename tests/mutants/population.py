"""Which files mutants are drawn from: eleven groups of equal weight, whatever their size."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from random import Random

from tests.mutants.sites import KINDS, Mutant, mutants_of

ROOT = Path(__file__).parents[2]
LIST = Path(__file__).with_name("mutants.json")
SEED, PER_GROUP = 24, 6

GROUPS: dict[str, tuple[str, ...]] = {
    "gates": ("shared/domain/gate.py", "shared/domain/metric.py", "pipelines/evaluation/gate_metrics.py"),
    "evidence": tuple(
        f"shared/domain/{name}.py"
        for name in ("step_analysis", "evidence", "guardrail", "evidence_history", "rollout_plan", "sequential_test")
    ),
    "drift": ("shared/domain/drift", "services/monitor/drift.py", "services/monitor/retrain_signals.py"),
    "access": ("shared/domain/access.py", *(f"services/api/{name}.py" for name in ("access", "auth", "token_cache", "limits", "tokens"))),
    "metrics": ("pipelines/evaluation",),
    "features": ("pipelines/features",),
    "loaders": ("pipelines/loaders",),
    "stores": ("services/store",),
    "control": ("services/control",),
    "gateway": ("services/gateway",),
    "domain": ("shared/domain",),
}
"""A file belongs to the first group that names it."""

ELSEWHERE = (
    "pipelines/features/engines/nvtabular",
    "pipelines/loaders/adapters",
    "services/store/postgres.py",
    "services/store/migrations",
)
"""Code that needs a framework, NVTabular or PostgreSQL: other suites than `make test` run it."""


def draw(seed: int = SEED, per_group: int = PER_GROUP) -> list[Mutant]:
    """Equal numbers of each group, the kinds in turn; the same for an equal seed and equal source."""
    used: set[str] = set()
    drawn: list[Mutant] = []
    for place, (group, names) in enumerate(GROUPS.items()):
        files = [path for path in _files(names) if path not in used]
        used.update(files)
        population = [mutant for path in files for mutant in mutants_of(ROOT, path, group)]
        random = Random(f"{seed} {group}")
        for turn in range(per_group):
            kind = KINDS[(place + turn) % len(KINDS)]
            chosen = random.choice([mutant for mutant in population if mutant.kind == kind and mutant not in drawn])
            drawn.append(chosen)
    return drawn


def read() -> list[Mutant]:
    return [Mutant(**row) for row in json.loads(LIST.read_text())["mutants"]]


def write(mutants: Sequence[Mutant], seed: int = SEED) -> None:
    text = json.dumps({"seed": seed, "mutants": [asdict(mutant) for mutant in mutants]}, indent=1)
    LIST.write_text(text + "\n")


def _files(names: Sequence[str]) -> list[str]:
    files = [path for name in names for path in ([ROOT / name] if name.endswith(".py") else sorted((ROOT / name).rglob("*.py")))]
    relative = [path.relative_to(ROOT).as_posix() for path in files]
    return [path for path in relative if not path.startswith(ELSEWHERE)]
