"""Waits until a run or rollout has ended."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from typing import TypeVar

from eyas_client.answers import Resource
from eyas_client.errors import Unavailable, Unsuccessful, WaitTimeout
from eyas_client.operation import Pause, Request, StepGenerator

PATIENCE = 30.0
"""Seconds without an answer, such as during a restart of the platform, before the wait gives up."""

R = TypeVar("R", bound=Resource)


def wait(
    request: Request[R], ends: Collection[str], timeout: float | None, every: float, progress: Callable[[R], object] | None
) -> StepGenerator[R]:
    """Reads the object until its state is in `ends`; `progress` gets each changed state of it."""
    answered = began = time.monotonic()
    last: R | None = None
    while True:
        try:
            resource = yield from request
        except Unavailable:
            if time.monotonic() - answered > PATIENCE:
                raise
        else:
            answered = time.monotonic()
            if progress is not None and resource != last:
                progress(resource)
            last = resource
            if resource.state in ends:
                return resource
        if timeout is not None and time.monotonic() - began + every > timeout:
            state = "did not answer" if last is None else f"is {last.state}"
            raise WaitTimeout(f"{request.path}: {state} after {timeout:g} s; it goes on: wait again, or set a longer timeout")
        yield Pause(every)


def check_success(resource: R, success: str) -> R:
    """Raises Unsuccessful if the state is another one."""
    if resource.state != success:
        kind = type(resource).__name__.lower()
        error = Unsuccessful(f"{kind} {resource.id} is {resource.state}: {resource.reason or resource.cause}")
        error.outcome = resource
        raise error
    return resource
