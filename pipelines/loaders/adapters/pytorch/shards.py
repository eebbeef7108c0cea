"""Selects the shard of an epoch for this process: by its rank in the process group, unless the loader has a shard of its own."""

from __future__ import annotations

from dataclasses import replace

import torch.distributed as group

from pipelines.loaders.epochs import EpochReader
from pipelines.loaders.plan import Shard
from shared.domain.errors import BadData


def sharded(loader: EpochReader) -> EpochReader:
    """Returns the loader with this rank's shard; a loader that is already one of several shards stays unchanged."""
    if loader.shard.world > 1 or not (group.is_available() and group.is_initialized()):
        return loader
    own = replace(loader, shard=Shard(group.get_rank(), group.get_world_size()))
    if own.chunks.rows < own.shard.world or not len(own):
        raise BadData(
            f"as_torch: {own.chunks.rows} rows are too few: one of the {own.shard.world} ranks has no"
            f" {'full ' if own.drop_last else ''}batch; use fewer ranks, smaller batches, or drop_last=False"
        )
    return own
