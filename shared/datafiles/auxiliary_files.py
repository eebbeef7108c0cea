"""What rows are worked out with and is no rows itself: an encoder, a folder of images. Under the operator's data roots as data is."""

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
        raise BadData(f"{uri}: there is no such {noun}")
    return path


def single_object(uri: str, roots: Sequence[str], store: S3, noun: str = "encoder") -> DataObject:
    bucket, key = allowed_key(uri, roots)
    listed = next((entry for entry in store.list(bucket, key) if entry.key == key), None)
    if listed is None:
        raise BadData(f"{uri}: there is no such {noun}")
    return DataObject(bucket, key, listed.size, listed.written, listed.tag)


def images_folder(uri: str, roots: Sequence[str]) -> Path:
    path = Path(allowed_pattern(uri, roots)[0])
    if not path.is_dir():
        raise BadData(f"{uri}: there is no such folder of images")
    return path


def images_in(folder: Path) -> Iterator[Path]:
    """All files in it and below, in no order; links out of it and to folders aren't followed."""
    real = folder.resolve()
    for above, _, names in os.walk(folder):
        for name in names:
            path = Path(above) / name
            if path.is_file() and (not path.is_symlink() or path.resolve().is_relative_to(real)):
                yield path


def images_objects(uri: str, roots: Sequence[str], store: S3) -> dict[str, DataObject]:
    """By what rows call them: their keys below the folder's."""
    bucket, key = allowed_key(uri, roots)
    folder = f"{key.rstrip('/')}/" if key else ""
    listed = (entry for entry in store.list(bucket, folder) if not entry.key.endswith("/"))
    images = {entry.key.removeprefix(folder): DataObject(bucket, entry.key, entry.size, entry.written, entry.tag) for entry in listed}
    if not images:
        raise BadData(f"{uri}: there is no such folder of images")
    return images
