"""Work that a step on torch gives a device, as far as a CPU can tell: operators, the memory that they write, waits for a number of the
device, and numbers brought there out of Python. Waits inside of an operator are not counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

_WAITS = ("_local_scalar_dense", "nonzero", "unique", "equal.default", "masked_select")
_BRINGS = ("lift_fresh",)
_VIEWS = ("detach", "view", "slice.", "select.", ".t.", "expand", "unbind", "unsqueeze", "squeeze", "alias", "transpose", "empty", "split")
"""No work of a device."""


@dataclass(frozen=True)
class DeviceWork:
    operators: int
    waits: int
    brought: int
    written: int
    """Bytes that operators return or change."""


def count_work(function: Callable[[], object]) -> DeviceWork:
    from torch.utils._python_dispatch import TorchDispatchMode

    calls: Counter[str] = Counter()
    written = 0

    class Counting(TorchDispatchMode):  # type: ignore[misc]
        def __torch_dispatch__(self, operator: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            nonlocal written
            calls[str(operator)] += 1
            result = operator(*args, **kwargs or {})
            if not any(part in str(operator) for part in _VIEWS):
                written += _bytes(args[0] if result is None and args else result)
            return result

    with Counting():
        function()

    def count(parts: tuple[str, ...]) -> int:
        return sum(number for name, number in calls.items() if any(part in name for part in parts))

    return DeviceWork(calls.total() - count(_VIEWS), count(_WAITS), count(_BRINGS), written)


def _bytes(result: Any) -> int:
    if isinstance(result, list | tuple):
        return sum(map(_bytes, result))
    return result.numel() * result.element_size() if hasattr(result, "numel") else 0
