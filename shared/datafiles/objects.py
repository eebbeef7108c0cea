"""Objects under the operator's data roots: `s3://BUCKET/PREFIX` (or gs://, az://) is a root, like a folder.

A key has no symlinks and no '..'; a folder is a prefix that ends with '/'.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from shared.datafiles.kinds import ENDINGS, LAYOUT, MAGIC, kind_of, of_a_folder
from shared.datafiles.object_store import DataObject, ObjectStore
from shared.domain.errors import BadData, Invalid, Unsupported
from shared.domain.object_uris import is_object, split

_BUCKET = re.compile(r"[a-z0-9]+://[a-z0-9][a-z0-9._-]{1,61}[a-z0-9]")


def layout(data_object: DataObject, store: ObjectStore) -> list[DataObject]:
    """Returns the file that describes the columns of a TFRecord, if it exists."""
    described = store.find(data_object.uri + LAYOUT) if kind_of(data_object.key) == "tfrecord" else None
    return [] if described is None else [described]


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


def data_objects(uri: str, roots: Sequence[str], store: ObjectStore) -> list[DataObject]:
    """Returns the objects of a uri, sorted by key; rejects objects that are not allowed, missing, or of an unknown kind."""
    bucket, key = allowed_key(uri, roots)
    if MAGIC & set(key):
        pattern = _pattern(key)
        listed = store.list(f"{bucket}/{_fixed(key)}")
        matching = [entry for entry in listed if pattern.fullmatch(entry.key) and not _is_folder_marker(entry)]
        if not matching:
            raise BadData(f"{uri}: no object matches")
        return [_checked(entry) for entry in matching]
    exact = store.find(uri) if key and not key.endswith("/") else None
    if exact is not None and not _is_folder_marker(exact):
        return [_checked(exact)]
    folder = f"{key.rstrip('/')}/" if key else ""
    listed = store.list(f"{bucket}/{folder}")
    below = [entry for entry in listed if of_a_folder(entry.key.removeprefix(folder))]
    if below:
        return [_checked(entry) for entry in below]
    if listed:
        raise BadData(f"{uri}: the folder has no data files (their names end in {ENDINGS})")
    raise BadData(f"{uri}: object not found")


def _is_folder_marker(entry: DataObject) -> bool:
    """Some tools write an empty object KEY/ for a folder; obstore lists it as KEY."""
    return not entry.size and kind_of(entry.key) is None


def _checked(data_object: DataObject) -> DataObject:
    if kind_of(data_object.key) is None:
        raise Unsupported(f"{data_object.uri}: not a data file: only names ending in {ENDINGS} are read")
    if not data_object.size:
        raise BadData(f"{data_object.uri}: the object is empty")
    return data_object


def _parts(uri: str) -> tuple[str, str]:
    bucket, key = split(uri)
    if not _BUCKET.fullmatch(bucket):
        raise Invalid(f"{uri}: expected {uri.partition(':')[0]}://BUCKET/KEY")
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
