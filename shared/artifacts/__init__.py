"""Content-addressed files on fsspec: written once, checked at every read, published by a manifest."""

from shared.artifacts.store import FsspecArtifacts

__all__ = ["FsspecArtifacts"]
