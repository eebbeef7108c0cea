"""What a step on torch asks of a device, as far as a CPU can tell: how many operators it starts, how much memory these write, how often it
has to wait for a number of the device's, and how often it brings one there out of Python. What waits inside of an operator isn't seen."""

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
class Asked:
    operators: int
    waits: int
    brought: int
    written: int
    """Bytes of what operators give or change."""


def asked(function: Callable[[], object]) -> Asked:
    from torch.utils._python_dispatch import TorchDispatchMode

    seen: Counter[str] = Counter()
    written = 0

    class Seen(TorchDispatchMode):  # type: ignore[misc]
        def __torch_dispatch__(self, operator: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            nonlocal written
            seen[str(operator)] += 1
            found = operator(*args, **kwargs or {})
            if not any(part in str(operator) for part in _VIEWS):
                written += _bytes(args[0] if found is None and args else found)
            return found

    with Seen():
        function()

    def of(parts: tuple[str, ...]) -> int:
        return sum(count for name, count in seen.items() if any(part in name for part in parts))

    return Asked(sum(seen.values()) - of(_VIEWS), of(_WAITS), of(_BRINGS), written)


def _bytes(found: Any) -> int:
    if isinstance(found, list | tuple):
        return sum(map(_bytes, found))
    return found.numel() * found.element_size() if hasattr(found, "numel") else 0
