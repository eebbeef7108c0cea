"""Parts of a step on torch that replace Keras', so that no number moves between host and device: each such move waits for the device.

Keras' dropout reads its seed from the device in each layer, which also breaks compilation; Keras' optimizers and a scaled loss make tensors
of Python numbers. Here the device's generator is seeded once per step from the host, and all weights are updated together, with the rules
and state of Keras' optimizers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

import numpy as np

from pipelines.models.neural.network import ColumnSelection, Network
from pipelines.models.neural.operations import KerasOperations
from pipelines.models.neural.optimizers import Name

Tensor = Any


class TorchDeviceOperations(KerasOperations):
    """Operations with the device's own random generator.

    `tiles` holds, by width, how vectors that consist only of parts are split: in one split, so that their gradient is assembled once.
    """

    def __init__(
        self, weights: Mapping[str, Any], moving: Mapping[str, Any], half: str | None, tiles: Mapping[int, tuple[int, ...]]
    ) -> None:
        super().__init__(weights, moving, None, half)
        self._tiles, self._cut = tiles, dict[int, tuple[Tensor, dict[int, Tensor]]]()

    def dense(self, rows: Any, kernel: Any, bias: Any) -> Any:
        import torch

        return torch.addmm(bias, rows, kernel)

    def dropout(self, rows: Any, rate: float) -> Any:
        from torch.nn.functional import dropout

        return dropout(rows, rate) if rate else rows

    def part(self, rows: Any, start: int, stop: int) -> Any:
        sizes = self._tiles.get(rows.shape[1])
        if sizes is None:
            return rows[:, start:stop]
        if id(rows) not in self._cut:
            starts = accumulate(sizes[:-1], initial=0)
            self._cut[id(rows)] = rows, dict(zip(starts, rows.split(sizes, 1), strict=True))  # the reference keeps the id unique
        return self._cut[id(rows)][1][start]


def tiles_of(network: Network, features: Mapping[str, int]) -> dict[int, tuple[int, ...]]:
    """Returns the tiles by width, if all Part nodes cut vectors of that width in the same way and without a gap."""
    widths, cuts = network.widths(features), dict[str, set[tuple[int, int]]]()
    for node in network.nodes:
        if isinstance(node, ColumnSelection):
            cuts.setdefault(node.of[0], set()).add((node.start, node.stop))
    ways_by_width = dict[int, set[tuple[tuple[int, int], ...]]]()
    for name, cut in cuts.items():
        ways_by_width.setdefault(widths[name], set()).add(tuple(sorted(cut)))
    tiled = {width: ways.pop() for width, ways in ways_by_width.items() if len(ways) == 1}
    return {
        width: tuple(stop - start for start, stop in way)
        for width, way in tiled.items()
        if [0, *(stop for _, stop in way)] == [*(start for start, _ in way), width]
    }


def seed_device(*seed: int) -> None:
    import torch

    drawn = np.random.SeedSequence(seed).generate_state(1, np.uint64)[0] >> np.uint64(1)
    torch.manual_seed(int(drawn))


def move(name: Name, optimizer: Any, rate: float, gradients: Sequence[Tensor], variables: Sequence[Any], sound: Tensor | None) -> None:
    """Takes a step of Keras' optimizer `name`. `sound` is a tensor that says whether the step is applied; None means it is."""
    import torch

    weights = [variable.value for variable in variables]
    if sound is not None:
        gradients = [torch.where(sound, gradient, torch.zeros_like(gradient)) for gradient in gradients]
    optimizer.iterations.value.add_(1 if sound is None else sound.to(optimizer.iterations.value.dtype))
    if name == "adam":
        _adam(torch, optimizer, rate, gradients, weights, sound)
    elif name == "adagrad":
        sums = [variable.value for variable in optimizer._accumulators]
        torch._foreach_addcmul_(sums, gradients, gradients)
        root = torch._foreach_add(sums, optimizer.epsilon)
        torch._foreach_sqrt_(root)
        torch._foreach_addcdiv_(weights, gradients, root, value=-rate)
    else:
        torch._foreach_add_(weights, gradients, alpha=-rate)


def _adam(torch: Any, optimizer: Any, rate: float, gradients: Sequence[Tensor], weights: Sequence[Tensor], sound: Tensor | None) -> None:
    moments, velocities = ([variable.value for variable in some] for some in (optimizer._momentums, optimizer._velocities))
    first, second, steps = optimizer.beta_1, optimizer.beta_2, optimizer.iterations.value.float().clamp(min=1)
    scale = torch.sqrt(1 - second**steps) / (1 - first**steps) * rate
    if sound is None:
        torch._foreach_mul_(moments, first)
        torch._foreach_mul_(velocities, second)
    else:
        applied = sound.float()
        torch._foreach_mul_(moments, 1 - applied * (1 - first))
        torch._foreach_mul_(velocities, 1 - applied * (1 - second))
        scale = scale * applied
    torch._foreach_add_(moments, gradients, alpha=1 - first)
    torch._foreach_addcmul_(velocities, gradients, gradients, value=1 - second)
    root = torch._foreach_sqrt(velocities)
    torch._foreach_add_(root, optimizer.epsilon)
    moved = torch._foreach_div(moments, root)
    torch._foreach_mul_(moved, scale)
    torch._foreach_sub_(weights, moved)


def unscale(gradients: Sequence[Tensor], scale: Tensor) -> Tensor:
    """Divides the gradients in place and returns whether all are finite."""
    import torch

    broken = torch.zeros((), device=scale.device)
    torch._amp_foreach_non_finite_check_and_unscale_(list(gradients), broken, scale.reciprocal())
    return broken == 0
