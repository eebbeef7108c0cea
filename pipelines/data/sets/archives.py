"""Downloads MovieLens from GroupLens over HTTPS; unpacks an archive only if size and sha256 match.

The platform includes none of the data: the licence allows research, but no redistribution.
"""

from __future__ import annotations

import hashlib
import http.client
import shutil
import urllib.error
import urllib.request
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shared.contracts.datatools import Downloaded
from shared.domain.errors import Conflict, Damaged, Invalid, Unavailable

LICENCE = (
    "MovieLens belongs to GroupLens (University of Minnesota): research is free with acknowledgement; redistribution and commercial use "
    "need their permission. README.txt in the archive has the full licence."
)
_PLACE = "https://files.grouplens.org/datasets/movielens/"
_PIECE, _PATIENCE = 1 << 20, 60.0
Progress = Callable[[str], None]


@dataclass(frozen=True)
class Archive:
    url: str
    size: int
    sha256: str


ARCHIVES: Mapping[str, Archive] = {
    "ml-100k": Archive(f"{_PLACE}ml-100k.zip", 4_924_029, "50d2a982c66986937beb9ffb3aa76efe955bf3d5c6b761f4e3a7cd717c6a3229"),
    "ml-1m": Archive(f"{_PLACE}ml-1m.zip", 5_917_549, "a6898adb50b9ca05aa231689da44c217cb524e7ebd39d264c56e2832f2c54e20"),
    "ml-20m": Archive(f"{_PLACE}ml-20m.zip", 198_702_078, "96f243c338a8665f6bcc89c53edf6ee39162a846940de6b7c8c48aeada765ff3"),
    "ml-25m": Archive(f"{_PLACE}ml-25m.zip", 261_978_986, "8b21cfb7eb1706b4ec0aac894368d90acf26ebdfb6aced3ebd4ad5bd1eb9c6aa"),
}


class _SecureAlone(urllib.request.HTTPRedirectHandler):
    """Rejects redirects away from HTTPS."""

    def redirect_request(self, req: Any, fp: Any, code: Any, msg: Any, headers: Any, newurl: str) -> Any:
        if not newurl.startswith("https://"):
            raise urllib.error.URLError(f"redirect to {newurl[:80]}, which is not HTTPS")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _over_https(url: str) -> Any:
    if not url.startswith("https://"):
        raise Invalid(f"{url}: not an HTTPS address")
    return urllib.request.build_opener(_SecureAlone).open(url, timeout=_PATIENCE)


def fetch_archive(
    name: str,
    folder: Path,
    say: Progress = lambda _: None,
    archives: Mapping[str, Archive] = ARCHIVES,
    opener: Callable[[str], Any] = _over_https,
) -> Downloaded:
    """Downloads and unpacks into `folder/NAME`; creates that folder complete or not at all."""
    if name not in archives:
        hint = "; download Criteo's logs by hand, from its web form" if name == "criteo" else ""
        raise Invalid(f"no archive of '{name}' (known: {', '.join(archives)}){hint}")
    place, archive = folder / name, archives[name]
    if place.exists():
        raise Conflict(f"{place}: already exists; name another folder, or remove this one")
    folder.mkdir(parents=True, exist_ok=True)
    packed, new = folder / f".new-{name}.zip", folder / f".new-{name}"
    try:
        _fetch(archive, packed, say, opener)
        shutil.rmtree(new, ignore_errors=True)
        _unpack(packed, new, archive.url)
        folders = [path for path in new.iterdir() if path.is_dir()]
        (folders[0] if len(folders) == 1 and len(list(new.iterdir())) == 1 else new).replace(place)
    finally:
        packed.unlink(missing_ok=True)
        shutil.rmtree(new, ignore_errors=True)
    return Downloaded(folder=str(place), bytes=archive.size, sha256=archive.sha256, licence=LICENCE)


def _fetch(archive: Archive, path: Path, say: Progress, opener: Callable[[str], Any]) -> None:
    digest, have = hashlib.sha256(), 0
    try:
        with opener(archive.url) as answer, path.open("wb") as stream:
            while piece := answer.read(_PIECE):
                have += len(piece)
                if have > archive.size:
                    break
                stream.write(piece)
                digest.update(piece)
                say(f"{archive.url}: {have >> 20:,} of {archive.size >> 20:,} MiB")
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", None) or error
        if isinstance(error, urllib.error.HTTPError):
            error.close()
        raise Unavailable(f"{archive.url}: download failed: {' '.join(str(reason).split())[:200]}") from error
    if have != archive.size or digest.hexdigest() != archive.sha256:
        difference = f"{have:,} bytes, expected {archive.size:,}" if have != archive.size else "its sha256 differs"
        raise Damaged(f"{archive.url}: not the expected archive: {difference}; nothing was unpacked")


def _unpack(packed: Path, new: Path, url: str) -> None:
    try:
        with zipfile.ZipFile(packed) as archive:
            for entry in archive.infolist():
                if not (new / entry.filename).resolve().is_relative_to(new.resolve()):
                    raise Damaged(f"{url}: entry '{entry.filename[:80]}' leads out of the folder")
            archive.extractall(new)
    except zipfile.BadZipFile as error:
        raise Damaged(f"{url}: cannot be unpacked: {error}") from None
