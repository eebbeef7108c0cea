"""Checks that all parts of an installation are ready: control plane and gateway by their Services, each Triton by its address."""

import socket
import sys
import time
import urllib.request

PATIENCE = 60.0


def fault(url: str) -> str | None:
    try:
        with urllib.request.urlopen(url, timeout=5):  # noqa: S310  Services and pods of the release
            return None
    except OSError as error:
        return f"{url}: {error}"


def wanted() -> list[str]:
    control, gateway, tritons = sys.argv[1:]
    found = sorted({str(one[4][0]) for one in socket.getaddrinfo(tritons, 8003, socket.AF_INET, socket.SOCK_STREAM)})
    return [f"http://{control}:8080/readyz", f"http://{gateway}:8080/readyz", *(f"http://{one}:8003/ready" for one in found)]


def main() -> int:
    until = time.monotonic() + PATIENCE
    while True:
        try:
            asked = wanted()
            faults = [found for found in map(fault, asked) if found]
        except OSError as error:
            asked, faults = [], [f"{sys.argv[3]}: {error}"]
        if not faults:
            sys.stdout.write("".join(f"ready: {url}\n" for url in asked))
            return 0
        if time.monotonic() > until:
            sys.stderr.write("".join(f"not ready: {found}\n" for found in faults))
            return 1
        time.sleep(2)


if __name__ == "__main__":
    sys.exit(main())
