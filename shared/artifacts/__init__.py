"""Content-addressed files on fsspec: written once, verified at every read, published by a manifest, garbage collected."""

from shared.artifacts.gc_storage import FsspecTrash
from shared.artifacts.live import FsspecLive
from shared.artifacts.objects import variables
from shared.artifacts.store import FsspecArtifacts

__all__ = ["FsspecArtifacts", "FsspecLive", "FsspecTrash", "variables"]
