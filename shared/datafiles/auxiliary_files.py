"""Files that process rows but contain none: an encoder, a folder of images. The data roots apply as for data."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from shared.datafiles.local import allowed_pattern
from shared.datafiles.objects import DataObject, allowed_key
from shared.datafiles.s3 import S3
from shared.domain.errors import BadData


def single_file(uri: str, roots: Sequence[str], noun: str = "encoder") -> Path:
    path = Path(allowed_pattern(uri, roots)[0])
    if not path.is_file():
        raise BadData(f"{uri}: {noun} not found")
    return path


def single_object(uri: str, roots: Sequence[str], store: S3, noun: str = "encoder") -> DataObject:
    bucket, key = allowed_key(uri, roots)
    listed = next((entry for entry in store.list(bucket, key) if entry.key == key), None)
    if listed is None:
        raise BadData(f"{uri}: {noun} not found")
    return DataObject(bucket, key, listed.size, listed.written, listed.tag)


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


def images_objects(uri: str, roots: Sequence[str], store: S3) -> dict[str, DataObject]:
    """Returns the images by their name in rows: the key below the folder."""
    bucket, key = allowed_key(uri, roots)
    folder = f"{key.rstrip('/')}/" if key else ""
    listed = (entry for entry in store.list(bucket, folder) if not entry.key.endswith("/"))
    images = {entry.key.removeprefix(folder): DataObject(bucket, entry.key, entry.size, entry.written, entry.tag) for entry in listed}
    if not images:
        raise BadData(f"{uri}: folder of images not found")
    return images
