"""Layouts of lists from tensors on any device, for the batches of a resident data set."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from pipelines.loaders.adapters.layout import LENGTHS, Dense, Layout, Lengths, Offsets, PaddedLayout
from pipelines.loaders.adapters.pytorch.tensors import Tensor, TensorLists
from shared.domain.errors import BadData
from shared.serving.signature import OFFSETS, VALUES


def laid_out(columns: Mapping[str, Any], chosen: Mapping[str, Layout]) -> dict[str, Tensor]:
    tensors: dict[str, Tensor] = {}
    for name, column in columns.items():
        tensors |= _apply_layout(name, column, chosen[name]) if isinstance(column, TensorLists) else {name: column}
    return tensors


def _apply_layout(name: str, lists: TensorLists, layout: Layout) -> dict[str, Tensor]:
    if isinstance(layout, Offsets):
        return {name + VALUES: lists.values, name + OFFSETS: lists.offsets}
    if isinstance(layout, Lengths):
        return {name + VALUES: lists.values, name + LENGTHS: lists.offsets.diff()}
    if isinstance(layout, PaddedLayout):
        return {name: _padded(name, lists, layout)}
    assert isinstance(layout, Dense)
    return {name: _dense(name, lists, layout.size)}


def _padded(name: str, lists: TensorLists, layout: PaddedLayout) -> Tensor:
    lengths, values = lists.offsets.diff(), lists.values
    width = layout.width
    if width is None or layout.longer == "refuse":
        longest = int(lengths.max()) if len(lists) else 0
        if width is not None and longest > width:
            raise BadData(
                f"column '{name}' has a list of {longest} values, padded lists have width {width}; set Padded({longest}) or longer='cut'"
            )
        width = width or max(1, longest)
    places = torch.arange(width, device=values.device)
    there = places < lengths[:, None]
    if layout.longer == "cut":  # the remaining values are not adjacent
        index = (lists.offsets[:-1, None] + places).clamp_(max=max(0, len(values) - 1))
        padded = values[index] if len(values) else values.new_zeros(index.shape)
        return padded.masked_fill_(~there, layout.value)
    return values.new_full((len(lists), width), layout.value).masked_scatter_(there, values)


def _dense(name: str, lists: TensorLists, size: int) -> Tensor:
    values = lists.values.long()
    if len(values) and (int(values.min()) < 0 or int(values.max()) >= size):
        wrong = int(values[(values < 0) | (values >= size)][0])
        raise BadData(f"column '{name}' has the value {wrong}; dense lists of size {size} take 0 to {size - 1}; set a larger size")
    rows = torch.arange(len(lists), device=values.device)
    places = torch.repeat_interleave(rows, lists.offsets.diff(), output_size=len(values)) * size + values
    dense = torch.zeros(len(lists) * size, device=values.device)
    return dense.index_fill_(0, places, 1).view(len(lists), size)
