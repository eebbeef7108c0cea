"""Objects of an S3 store under the operator's data roots: `s3://BUCKET/PREFIX` is a root as a folder is one.

An object has no symlinks and no '..'; a folder is a prefix that ends at a '/'.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from shared.datafiles.kinds import ENDINGS, LAYOUT, MAGIC, kind_of, of_a_folder
from shared.datafiles.s3 import S3, Listed
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

    def layout(self, store: S3) -> list[Listed]:
        """What says how the columns of a TFRecord lie, where there is such a thing."""
        if kind_of(self.key) != "tfrecord":
            return []
        return [one for one in store.list(self.bucket, self.key + LAYOUT) if one.key == self.key + LAYOUT]


def is_object(uri: str) -> bool:
    return uri.startswith(SCHEME)


def allowed_key(uri: str, roots: Sequence[str]) -> tuple[str, str]:
    """The bucket and the key (or pattern of keys) that a uri means; refuses what lies under no root."""
    bucket, key = _parts(uri)
    if any(part in (".", "..") for part in key.split("/")):
        raise Invalid(f"{uri}: a key can't have '.' or '..'")
    fixed = _fixed(key)
    for root in roots:
        if is_object(root):
            its, prefix = _parts(root)
            whole = prefix.rstrip("/")
            if its == bucket and (not whole or fixed.rstrip("/") == whole or fixed.startswith(f"{whole}/")):
                return bucket, key
    listed = ", ".join(root for root in roots if is_object(root)) or "none of them is in an object store"
    raise Invalid(f"{uri}: it doesn't lie under an allowed data root ({listed})")


def data_objects(uri: str, roots: Sequence[str], store: S3) -> list[DataObject]:
    """The objects that a uri means, in the order of their keys; refuses what is not allowed, not there, or of no known kind."""
    bucket, key = allowed_key(uri, roots)
    if MAGIC & set(key):
        pattern = _pattern(key)
        found = [one for one in store.list(bucket, _fixed(key)) if pattern.fullmatch(one.key) and not one.key.endswith("/")]
        if not found:
            raise BadData(f"{uri}: no object matches")
        return [_checked(bucket, one) for one in found]
    folder = f"{key.rstrip('/')}/" if key else ""
    listed = list(store.list(bucket, key.rstrip("/")))
    exact = [one for one in listed if one.key == key]
    if exact:
        return [_checked(bucket, exact[0])]
    below = [one for one in listed if one.key.startswith(folder) and of_a_folder(one.key.removeprefix(folder))]
    if below:
        return [_checked(bucket, one) for one in below]
    if any(one.key.startswith(folder) for one in listed):
        raise BadData(f"{uri}: the folder has no data files (their names end in {ENDINGS})")
    raise BadData(f"{uri}: there is no such object")


def _checked(bucket: str, one: Listed) -> DataObject:
    found = DataObject(bucket, one.key, one.size, one.written, one.tag)
    if kind_of(one.key) is None:
        raise Unsupported(f"{found.uri}: it is no data file: only names ending in {ENDINGS} are read")
    if not one.size:
        raise BadData(f"{found.uri}: the object is empty")
    return found


def _parts(uri: str) -> tuple[str, str]:
    bucket, _, key = uri.removeprefix(SCHEME).partition("/")
    if not _BUCKET.fullmatch(bucket):
        raise Invalid(f"{uri}: expected s3://BUCKET/KEY")
    return bucket, key


def _fixed(key: str) -> str:
    """What stands before the first wildcard."""
    return key[: next((place for place, one in enumerate(key) if one in MAGIC), len(key))]


def _pattern(key: str) -> re.Pattern[str]:
    """`*` and `?` stay within a folder; `**` doesn't; `[...]` is one of these characters."""
    found = ""
    for token in re.findall(r"\*\*/|\*\*|\*|\?|\[[^]]+\]|.", key, re.DOTALL):
        match token:
            case "**/":
                found += "(?:.*/)?"
            case "**":
                found += ".*"
            case "*":
                found += "[^/]*"
            case "?":
                found += "[^/]"
            case _ if len(token) > 1:
                inner = re.sub(r"([\\^\[])", r"\\\1", token[1:-1])
                found += f"[^/{inner[1:]}]" if inner[0] == "!" else f"[{inner}]"
            case _:
                found += re.escape(token)
    try:
        return re.compile(found, re.DOTALL)
    except re.error:
        raise Invalid(f"{key}: its brackets make no pattern") from None
