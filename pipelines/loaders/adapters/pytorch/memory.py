"""Limits the GPU memory of PyTorch; call before PyTorch takes any."""

from __future__ import annotations

from typing import Any

import torch

from shared.domain.errors import Conflict, Invalid


def cap_gpu_memory(share: float, device: Any = None) -> None:
    """Limits this process to a share of the device's memory, or of every visible GPU's if `device` is None. Beyond it, PyTorch raises its
    own out-of-memory error, and other processes are not affected."""
    if not 0 < share <= 1:
        raise Invalid(f"cap_gpu_memory: share {share} must be more than 0 and at most 1")
    if not torch.cuda.is_available():
        raise Invalid("cap_gpu_memory: PyTorch sees no GPU; remove the cap")
    for gpu in range(torch.cuda.device_count()) if device is None else [device]:
        reserved = torch.cuda.memory_reserved(gpu)
        if reserved > share * torch.cuda.get_device_properties(gpu).total_memory:
            raise Conflict(
                f"cap_gpu_memory: PyTorch already has {reserved / 2**30:.3g} GiB of GPU {gpu}, more than a share of {share:g}; set the "
                "cap before the first allocation"
            )
        torch.cuda.set_per_process_memory_fraction(share, gpu)
