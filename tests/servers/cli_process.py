"""Runs `eyas` as a process, in a pipe or on a pseudo terminal, against a stub of the API on loopback."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import threading
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

ROOT = Path(__file__).parents[2]
MOST = 60
"""Seconds after which something is wrong; nothing is measured by it."""
ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Loopback:
    """A stub of the API: answers by method and path; several answers to one request come in turn, and the last one repeats."""

    def __init__(self):
        self.answers = {}
        self.asked = []

    def says(self, question, *answers, status=200):
        self.answers[question] = [(status, one) for one in answers]

    def answer(self, question):
        self.asked.append(question)
        told = self.answers.get(question)
        if told is None:
            return 404, {
                "type": "https://eyas.dev/problems/not-found",
                "detail": f"nothing is known of {question}",
                "status": 404,
                "title": "",
            }
        return told.pop(0) if len(told) > 1 else told[0]


@contextmanager
def loopback():
    told = Loopback()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            status, body = told.answer(f"{self.command} {urlsplit(self.path).path}")
            text = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        do_POST = do_GET

        def log_message(self, *_):
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    told.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield told
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def environment(url, **more):
    kept = {name: value for name, value in os.environ.items() if name in {"PATH", "HOME", "LANG", "LD_LIBRARY_PATH"}}
    return kept | {"EYAS_URL": url, "EYAS_TOKEN": "a-token", "PYTHONPATH": str(ROOT), "PYTHONUTF8": "1", "TERM": "xterm"} | more


COMMAND = (sys.executable, "-m", "services.cli.main")


def piped(url, *words, **more):
    return subprocess.run([*COMMAND, *words], env=environment(url, **more), capture_output=True, text=True, timeout=MOST, check=False)


class Terminal:
    """A pseudo terminal and what was written to it."""

    def __init__(self, process, master):
        self.process = process
        self.text = ""
        self._master = master

    def until(self, wanted):
        """Reads until that stands there, whatever its colours."""
        end = time.monotonic() + MOST
        while wanted not in ESCAPE.sub("", self.text):
            assert time.monotonic() < end, f"{wanted!r} never came: {self.text!r}"
            if not self._read():
                assert wanted in ESCAPE.sub("", self.text), self.text
        return self

    def types(self, text):
        os.write(self._master, text.encode())

    def resizes(self, columns, rows=24):
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def interrupt(self):
        self.types("\x03")

    def ends(self):
        """Everything that it wrote, and its exit code."""
        end = time.monotonic() + MOST
        while self._read():
            assert time.monotonic() < end, f"it doesn't end: {self.text!r}"
        return self.process.wait(MOST)

    @property
    def lines(self):
        return [ESCAPE.sub("", line).rstrip() for line in self.text.replace("\r\n", "\n").splitlines()]

    def _read(self):
        ready, _, _ = select.select([self._master], [], [], 1)
        if not ready:
            return True
        try:
            found = os.read(self._master, 65536)
        except OSError:  # the other end is closed
            return False
        self.text += found.decode()
        return bool(found)


@contextmanager
def terminal(url, *words, columns=80, rows=24, command=COMMAND, **more):
    """A terminal of that size, on which the command runs."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    # Whoever leads a session and opens a terminal has it as its own, and is ended by its Ctrl-C.
    owned = ("sh", "-c", 'exec "$@" <"$0" >"$0" 2>&1', os.ttyname(slave))
    process = subprocess.Popen([*owned, *command, *words], env=environment(url, **more), stdin=slave, start_new_session=True)
    os.close(slave)
    found = Terminal(process, master)
    try:
        yield found
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
        process.wait(MOST)
        os.close(master)
