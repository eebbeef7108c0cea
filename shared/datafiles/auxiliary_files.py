"""Files that process rows but contain none: an encoder, a folder of images. The data roots apply as for data."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from shared.datafiles.local import allowed_pattern
from shared.datafiles.object_store import DataObject, ObjectStore
from shared.datafiles.objects import allowed_key
from shared.domain.errors import BadData


def single_file(uri: str, roots: Sequence[str], noun: str = "encoder") -> Path:
    path = Path(allowed_pattern(uri, roots)[0])
    if not path.is_file():
        raise BadData(f"{uri}: {noun} not found")
    return path


def single_object(uri: str, roots: Sequence[str], store: ObjectStore, noun: str = "encoder") -> DataObject:
    allowed_key(uri, roots)
    listed = store.find(uri)
    if listed is None:
        raise BadData(f"{uri}: {noun} not found")
    return listed


def images_folder(uri: str, roots: Sequence[str]) -> Path:
    path = Path(allowed_pattern(uri, roots)[0])
    if not path.is_dir():
        raise BadData(f"{uri}: folder of images not found")
    return path


def images_in(folder: Path) -> Iterator[Path]:
    """Yields all files in the folder and below, unordered; does not follow links out of the folder or to folders."""
    real = folder.resolve()
    for above, _, names in os.walk(folder):
        for name in names:
            path = Path(above) / name
            if path.is_file() and (not path.is_symlink() or path.resolve().is_relative_to(real)):
                yield path


def images_objects(uri: str, roots: Sequence[str], store: ObjectStore) -> dict[str, DataObject]:
    """Returns the images by their name in rows: the key below the folder."""
    bucket, key = allowed_key(uri, roots)
    folder = f"{key.rstrip('/')}/" if key else ""
    images = {entry.key.removeprefix(folder): entry for entry in store.list(f"{bucket}/{folder}")}
    if not images:
        raise BadData(f"{uri}: folder of images not found")
    return images
