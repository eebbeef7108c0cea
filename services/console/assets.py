"""Style sheet, script and icons under names with their digest: browsers keep them for a year, and they are never stale."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

_FOLDER = Path(__file__).parent / "static"
_KINDS = {".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}


@cache
def _files() -> dict[str, tuple[bytes, str]]:
    """Files by served name. A request can name only these: no path is built from a request."""
    files = {}
    for path in sorted(_FOLDER.iterdir()):
        if path.suffix in _KINDS:
            files[_name(path)] = (path.read_bytes(), _KINDS[path.suffix])
    return files


@cache
def _name(path: Path) -> str:
    return f"{path.stem}.{hashlib.sha256(path.read_bytes()).hexdigest()[:12]}{path.suffix}"


def address(name: str) -> str:
    return f"/static/{_name(_FOLDER / name)}"


def routes() -> list[BaseRoute]:
    async def asset(request: Request) -> Response:
        file = _files().get(request.path_params["name"])
        if file is None:
            return Response(status_code=404)
        return Response(file[0], media_type=file[1], headers={"Cache-Control": "public, max-age=31536000, immutable"})

    return [Route("/static/{name}", asset)]
