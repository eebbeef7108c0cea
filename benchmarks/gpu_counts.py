"""What a step on torch asks of a device, as far as a CPU can tell: how many operators it starts, how often it has to wait for a number of
the device's, and how often it brings one there out of Python. What waits inside of an operator isn't seen."""

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


def asked(function: Callable[[], object]) -> Asked:
    from torch.utils._python_dispatch import TorchDispatchMode

    seen: Counter[str] = Counter()

    class Seen(TorchDispatchMode):  # type: ignore[misc]
        def __torch_dispatch__(self, operator: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen[str(operator)] += 1
            return operator(*args, **kwargs or {})

    with Seen():
        function()

    def of(parts: tuple[str, ...]) -> int:
        return sum(count for name, count in seen.items() if any(part in name for part in parts))

    return Asked(sum(seen.values()) - of(_VIEWS), of(_WAITS), of(_BRINGS))
