"""Parts of a step on torch that replace Keras', so that no number moves between host and device: each such move waits for the device.

Keras' dropout reads its seed from the device in each layer, which also breaks compilation; Keras' optimizers and a scaled loss make tensors
of Python numbers. Here the device's generator is seeded once per step from the host, and all weights are updated together, with the rules
and state of Keras' optimizers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pipelines.models.neural.operations import KerasOperations
from pipelines.models.neural.optimizers import Name

Tensor = Any


class TorchDeviceOperations(KerasOperations):
    """Operations with the device's own random generator."""

    def dense(self, rows: Any, kernel: Any, bias: Any) -> Any:
        import torch

        return torch.addmm(bias, rows, kernel)

    def dropout(self, rows: Any, rate: float) -> Any:
        from torch.nn.functional import dropout

        return dropout(rows, rate) if rate else rows


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
