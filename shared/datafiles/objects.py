"""Objects of an S3 store under the operator's data roots: `s3://BUCKET/PREFIX` is a root, like a folder.

A key has no symlinks and no '..'; a folder is a prefix that ends with '/'.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from shared.datafiles.kinds import ENDINGS, LAYOUT, MAGIC, kind_of, of_a_folder
from shared.datafiles.s3 import S3, ListedObject
from shared.domain.errors import BadData, Invalid, Unsupported

SCHEME = "s3://"
_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")


@dataclass(frozen=True)
class DataObject:
    bucket: str
    key: str
    size: int
    written: str
    tag: str

    @property
    def uri(self) -> str:
        return f"{SCHEME}{self.bucket}/{self.key}"

    def layout(self, store: S3) -> list[ListedObject]:
        """Returns the file that describes the columns of a TFRecord, if it exists."""
        if kind_of(self.key) != "tfrecord":
            return []
        return [entry for entry in store.list(self.bucket, self.key + LAYOUT) if entry.key == self.key + LAYOUT]


def is_object(uri: str) -> bool:
    return uri.startswith(SCHEME)


def allowed_key(uri: str, roots: Sequence[str]) -> tuple[str, str]:
    """Returns the bucket and the key (or key pattern) of a uri; rejects uris outside the roots."""
    bucket, key = _parts(uri)
    if any(part in (".", "..") for part in key.split("/")):
        raise Invalid(f"{uri}: a key cannot have '.' or '..'")
    fixed = _fixed(key)
    for root in roots:
        if is_object(root):
            root_bucket, prefix = _parts(root)
            root_key = prefix.rstrip("/")
            if root_bucket == bucket and (not root_key or fixed.rstrip("/") == root_key or fixed.startswith(f"{root_key}/")):
                return bucket, key
    listed = ", ".join(root for root in roots if is_object(root)) or "none is in an object store"
    raise Invalid(f"{uri}: not under an allowed data root ({listed})")


def data_objects(uri: str, roots: Sequence[str], store: S3) -> list[DataObject]:
    """Returns the objects of a uri, sorted by key; rejects objects that are not allowed, missing, or of an unknown kind."""
    bucket, key = allowed_key(uri, roots)
    if MAGIC & set(key):
        pattern = _pattern(key)
        matching = [entry for entry in store.list(bucket, _fixed(key)) if pattern.fullmatch(entry.key) and not entry.key.endswith("/")]
        if not matching:
            raise BadData(f"{uri}: no object matches")
        return [_checked(bucket, entry) for entry in matching]
    folder = f"{key.rstrip('/')}/" if key else ""
    listed = list(store.list(bucket, key.rstrip("/")))
    exact = [entry for entry in listed if entry.key == key]
    if exact:
        return [_checked(bucket, exact[0])]
    below = [entry for entry in listed if entry.key.startswith(folder) and of_a_folder(entry.key.removeprefix(folder))]
    if below:
        return [_checked(bucket, entry) for entry in below]
    if any(entry.key.startswith(folder) for entry in listed):
        raise BadData(f"{uri}: the folder has no data files (their names end in {ENDINGS})")
    raise BadData(f"{uri}: object not found")


def _checked(bucket: str, entry: ListedObject) -> DataObject:
    data_object = DataObject(bucket, entry.key, entry.size, entry.written, entry.tag)
    if kind_of(entry.key) is None:
        raise Unsupported(f"{data_object.uri}: not a data file: only names ending in {ENDINGS} are read")
    if not entry.size:
        raise BadData(f"{data_object.uri}: the object is empty")
    return data_object


def _parts(uri: str) -> tuple[str, str]:
    bucket, _, key = uri.removeprefix(SCHEME).partition("/")
    if not _BUCKET.fullmatch(bucket):
        raise Invalid(f"{uri}: expected s3://BUCKET/KEY")
    return bucket, key


def _fixed(key: str) -> str:
    """Returns the part before the first wildcard."""
    return key[: next((place for place, character in enumerate(key) if character in MAGIC), len(key))]


def _pattern(key: str) -> re.Pattern[str]:
    """Compiles a pattern: `*` and `?` match within a folder, `**` across folders; `[...]` matches one of the characters."""
    regex = ""
    for token in re.findall(r"\*\*/|\*\*|\*|\?|\[[^]]+\]|.", key, re.DOTALL):
        match token:
            case "**/":
                regex += "(?:.*/)?"
            case "**":
                regex += ".*"
            case "*":
                regex += "[^/]*"
            case "?":
                regex += "[^/]"
            case _ if len(token) > 1:
                inner = re.sub(r"([\\^\[])", r"\\\1", token[1:-1])
                regex += f"[^/{inner[1:]}]" if inner[0] == "!" else f"[{inner}]"
            case _:
                regex += re.escape(token)
    try:
        return re.compile(regex, re.DOTALL)
    except re.error:
        raise Invalid(f"{key}: its brackets are not a valid pattern") from None
