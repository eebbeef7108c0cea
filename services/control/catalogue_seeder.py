"""Seeds catalogues with the items table's attributes, as published with versions: compares desired state with the progress at every step.

Desired is the seed of a recommender's newest version that a route or an active rollout names; a version gets no traffic before its seed, or
a newer one, is applied. Progress is stored after each part: memory stays bounded, and a restart repeats one part at most, which changes
nothing. A later write of a client wins over the table, by time.
"""

from __future__ import annotations

import itertools
import json
import logging
from collections.abc import Callable, Mapping

from services.control.worker_loop import in_turn
from shared.contracts.items_table import SEED, Seed, read_part, seed_files
from shared.contracts.stage import Files, digest_of
from shared.contracts.strict import read
from shared.domain.errors import Damaged, EyasError, Invalid, NotFound, Unreadable
from shared.ports import ArtifactStore, Catalogue, Registry, SeedProgress, SeedRow

log = logging.getLogger(__name__)

AT_ONCE = 2_000
"""Items per write."""

_DEAD = (Damaged, NotFound, Invalid, Unreadable, ValueError, KeyError)
"""Errors that a retry cannot fix."""

Key = tuple[str, int]


class CatalogueSeeder:
    """Control loop: one control plane at a time calls `step`; all may call `loaded`, which reads the progress."""

    def __init__(
        self, named: Callable[[], Mapping[str, frozenset[int]]], registry: Registry, artifacts: ArtifactStore, catalogue: Catalogue
    ) -> None:
        """`named`: the versions of routes and active rollouts."""
        self._named = named
        self._registry = registry
        self._artifacts = artifacts
        self._catalogue = catalogue
        self._seeds: dict[Key, tuple[Seed, str] | None] = {}
        self._faults: dict[Key, str] = {}
        self._waiting = 0

    def due(self) -> float | None:
        """Returns the seconds until a step has work without any change; None if never."""
        return 0.0 if self._waiting else None

    def step(self) -> None:
        """Applies one part of each recommender's seed. A fault of one recommender does not block the others."""
        named, seeds = self._named(), self._catalogue.seeds()
        keys = {(name, version) for name, versions in named.items() for version in versions}
        self._faults = {key: fault for key, fault in self._faults.items() if key in keys}  # a new rollout tries again
        left, fault = in_turn(named, lambda name: self._recommender(name, sorted(named[name], reverse=True), seeds.get(name)))
        self._waiting = left + (fault is not None)
        if fault is not None:
            raise fault

    def loaded(self, recommender: str, version: int) -> bool:
        """Returns whether the catalogue has the attributes that the version was published with, or newer ones."""
        if self.fault(recommender, version) is not None:
            return False
        try:
            if self._seed(recommender, version) is None:
                return True
            progress = self._catalogue.seeds().get(recommender)
        except (EyasError, ValueError) as error:  # state unknown
            log.debug("catalogue seed: reading failed recommender=%s version=%d error=%s", recommender, version, error)
            return False
        return progress is not None and progress.version >= version and not progress.left

    def fault(self, recommender: str, version: int) -> str | None:
        """Returns why the version's seed can't be applied; None if it did not fail."""
        return self._faults.get((recommender, version))

    def _recommender(self, name: str, versions: list[int], progress: SeedProgress | None) -> int:
        """Applies a part of the newest seed; returns how many parts are left. An unreadable seed leaves the turn to the one before."""
        for version in versions:
            if progress is not None and version <= progress.version and not progress.left:
                return 0
            if (name, version) in self._faults:
                continue
            try:
                seed = self._seed(name, version)
                if seed is not None:
                    return self._apply(name, version, *seed, progress)
            except _DEAD as error:
                self._faults[name, version] = str(error)
                log.error("catalogue seed: reading failed recommender=%s version=%d error=%s", name, version, error)
        return 0

    def _apply(self, name: str, version: int, seed: Seed, digest: str, progress: SeedProgress | None) -> int:
        left = progress.left if progress is not None and progress.digest == digest else len(seed.parts)
        if left:
            part = seed.parts[len(seed.parts) - left]
            changed = self._write(name, version, seed, part)
            left -= 1
            log.info("catalogue seed: part applied recommender=%s version=%d part=%s changed=%d", name, version, part, changed)
        self._catalogue.mark_seed(name, SeedProgress(version, digest, left))
        return left

    def _write(self, name: str, version: int, seed: Seed, part: str) -> int:
        rows, changed = read_part(self._artifacts.read(self._files(name, version)[part])), 0
        while page := {item: SeedRow(attributes, id) for item, id, attributes in itertools.islice(rows, AT_ONCE)}:
            changed += self._catalogue.seed(name, page, seed.at)
        return changed

    def _seed(self, recommender: str, version: int) -> tuple[Seed, str] | None:
        """Returns the version's seed and its digest; None for a version without one. They never change."""
        key = (recommender, version)
        if key not in self._seeds:
            files = self._files(recommender, version)
            label = f"{SEED} of {recommender} version {version}"
            seed = read(Seed, json.loads(self._artifacts.read(files[SEED])), label) if SEED in files else None
            self._seeds[key] = None if seed is None else (seed, digest_of(files))
        return self._seeds[key]

    def _files(self, recommender: str, version: int) -> Files:
        return seed_files(self._registry.get(recommender, version).files)
