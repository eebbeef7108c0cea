"""A real yaml-language-server, spoken to over stdio as an editor does."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.support.npx import npx

PACKAGE = "yaml-language-server@1.23.0"
"""The last version for Node 20; later ones need Node 22."""
CURSOR = "¦"
_SETTINGS = {"validate": True, "completion": True, "hover": True, "schemaStore": {"enable": False}}
_CAPABILITIES = {
    "textDocument": {
        "completion": {"completionItem": {"snippetSupport": True, "documentationFormat": ["markdown"]}},
        "hover": {"contentFormat": ["markdown"]},
        "publishDiagnostics": {},
    },
    "workspace": {"configuration": True},
}


class YamlLanguageServer:
    """The server, and the documents that the test has opened in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._process = subprocess.Popen(
            [*npx(PACKAGE, "yaml-language-server"), "--stdio"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        self._requests = self._documents = 0
        self._diagnostics: dict[str, list[dict[str, Any]]] = {}
        self._ask("initialize", {"processId": None, "rootUri": None, "capabilities": _CAPABILITIES})
        self._send({"method": "initialized", "params": {}})

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._ask("shutdown", None)
        self._send({"method": "exit"})
        self._process.communicate(timeout=30)

    def diagnostics(self, *texts: str) -> list[list[tuple[int, str]]]:
        """The lines, from 0, and the messages of each document's diagnostics. The server waits a moment before it sends any."""
        addresses = [self._open(text)[0] for text in texts]
        while not self._diagnostics.keys() >= set(addresses):
            self._read()
        return [[(entry["range"]["start"]["line"], entry["message"]) for entry in self._diagnostics[address]] for address in addresses]

    def completions(self, text: str) -> dict[str, dict[str, Any]]:
        """The completions at CURSOR, by label."""
        address, place = self._open(text)
        return {
            entry["label"]: entry for entry in self._ask("textDocument/completion", {"textDocument": {"uri": address}} | place)["items"]
        }

    def hover(self, text: str) -> str:
        """The text that an editor shows at CURSOR."""
        address, place = self._open(text)
        return str(self._ask("textDocument/hover", {"textDocument": {"uri": address}} | place)["contents"]["value"])

    def _open(self, text: str) -> tuple[str, dict[str, Any]]:
        before, _, after = text.partition(CURSOR)
        self._documents += 1
        address = (self.folder / f"{self._documents}.yaml").as_uri()
        document = {"uri": address, "languageId": "yaml", "version": 1, "text": before + after}
        self._send({"method": "textDocument/didOpen", "params": {"textDocument": document}})
        return address, {"position": {"line": before.count("\n"), "character": len(before.rpartition("\n")[2])}}

    def _ask(self, method: str, params: Any) -> Any:
        self._requests += 1
        self._send({"id": self._requests, "method": method, "params": params})
        while True:
            message = self._read()
            if message.get("id") == self._requests and "method" not in message:
                assert "error" not in message, message["error"]
                return message["result"]

    def _send(self, message: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        self._process.stdin.write(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
        self._process.stdin.flush()

    def _read(self) -> dict[str, Any]:
        """Reads one message; answers a request for settings, and stores diagnostics."""
        assert self._process.stdout is not None
        length = 0
        while line := self._process.stdout.readline().strip():
            name, _, value = line.partition(b":")
            length = int(value) if name.lower() == b"content-length" else length
        assert length, "the server has ended"
        message: dict[str, Any] = json.loads(self._process.stdout.read(length))
        if "method" in message and "id" in message:
            sections = [entry.get("section") for entry in (message.get("params") or {}).get("items", ())]
            self._send({"id": message["id"], "result": [_SETTINGS if section == "yaml" else {} for section in sections]})
        elif message.get("method") == "textDocument/publishDiagnostics":
            self._diagnostics[message["params"]["uri"]] = message["params"]["diagnostics"]
        return message
