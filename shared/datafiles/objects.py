"""Objects under the operator's data roots: `s3://BUCKET/PREFIX` (or gs://, az://) is a root, like a folder.

A key has no symlinks and no '..'; a folder is a prefix that ends with '/'.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from shared.datafiles.kinds import ENDINGS, LAYOUT, MAGIC, kind_of, of_a_folder
from shared.datafiles.object_store import DataObject, ObjectStore
from shared.datafiles.table_logs import LOGS, Format, log_format, part_of_table, table_above
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
    if _is_allowed(bucket, _fixed(key), roots):
        return bucket, key
    listed = ", ".join(root for root in roots if is_object(root)) or "none is in an object store"
    raise Invalid(f"{uri}: not under an allowed data root ({listed})")


def _is_allowed(bucket: str, key: str, roots: Sequence[str]) -> bool:
    for root in roots:
        if is_object(root):
            root_bucket, prefix = _parts(root)
            root_key = prefix.rstrip("/")
            if root_bucket == bucket and (not root_key or key.rstrip("/") == root_key or key.startswith(f"{root_key}/")):
                return True
    return False


def data_objects(uri: str, roots: Sequence[str], store: ObjectStore) -> list[DataObject]:
    """Returns the objects of a uri, sorted by key; rejects objects that are not allowed, missing, or of an unknown kind."""
    bucket, key = allowed_key(uri, roots)
    if MAGIC & set(key):
        pattern = _pattern(key)
        listed = store.list(f"{bucket}/{_fixed(key)}")
        matching = [entry for entry in listed if pattern.fullmatch(entry.key) and not _is_folder_marker(entry)]
        if not matching:
            raise BadData(f"{uri}: no object matches")
        _check_no_table(matching, listed, uri, roots, store)
        return [_checked(entry) for entry in matching]
    exact = store.find(uri) if key and not key.endswith("/") else None
    if exact is not None and not _is_folder_marker(exact):
        _check_no_table([exact], [], uri, roots, store)
        return [_checked(exact)]
    folder = f"{key.rstrip('/')}/" if key else ""
    listed = store.list(f"{bucket}/{folder}")
    below = [entry for entry in listed if of_a_folder(entry.key.removeprefix(folder))]
    if below:
        _check_no_table(below, listed, uri, roots, store)
        return [_checked(entry) for entry in below]
    if listed:
        raise BadData(f"{uri}: the folder has no data files (their names end in {ENDINGS})")
    raise BadData(f"{uri}: object not found")


def table_format(folder: str, store: ObjectStore) -> Format | None:
    """Returns the format if the folder, an object uri without '/' at its end, is a table whose rows a log defines."""
    for name in LOGS.values():
        try:
            for page in store.pages(f"{folder}/{name}/"):
                if page and (format := log_format(name, [entry.key for entry in page])):
                    return format
        except Invalid:  # a key that may only read objects, not list them
            return None
    return None


def _check_no_table(files: Sequence[DataObject], listed: Sequence[DataObject], uri: str, roots: Sequence[str], store: ObjectStore) -> None:
    """Rejects files of a table: its log, not its folder, says which of them have rows. `listed`: the objects of the listed folder."""
    bucket, key = _parts(uri)
    tables = {table[0]: table[1] for entry in listed if (table := table_above(entry.key))}
    inside = [folder for folder in tables if any(entry.key.startswith(f"{folder}/".lstrip("/")) for entry in files)]
    for folder in _folders_above(_fixed(key)):
        if not inside and _is_allowed(bucket, folder, roots) and (format := table_format(f"{bucket}/{folder}".rstrip("/"), store)):
            tables[folder] = format
            inside.append(folder)
    if inside:
        raise part_of_table(uri, f"{bucket}/{inside[0]}".rstrip("/"), tables[inside[0]])


def _folders_above(key: str) -> list[str]:
    """Returns the folders that contain a key, the nearest first; the last one is the bucket."""
    parts = key.split("/")[:-1]
    return ["/".join(parts[:count]) for count in range(len(parts), -1, -1)]


def base_key(uri: str) -> str:
    """Returns the beginning of the keys below which their folders may be partitions."""
    _, key = _parts(uri)
    return _fixed(key).rpartition("/")[0] if MAGIC & set(key) else key.rstrip("/")


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
