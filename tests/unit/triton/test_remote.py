"""A Triton that somebody else runs: its lives are told apart by what it leaves beside the repository."""

from __future__ import annotations

from pathlib import Path

import pytest

from services.triton.generation_marker import announce
from services.triton.remote import RemoteTriton
from shared.domain.errors import Unavailable


def remote(home: Path) -> RemoteTriton:
    return RemoteTriton("triton:8001", home)


def test_one_that_never_announced_itself_is_waited_for(tmp_path: Path) -> None:
    triton = remote(tmp_path)
    assert triton.generation == 0
    with pytest.raises(Unavailable, match="no Triton has announced itself"):
        triton.ensure_running()
    announce(tmp_path)
    assert triton.ensure_running()
    assert triton.generation == 1


def test_each_life_says_whether_it_has_a_gpu(tmp_path: Path) -> None:
    triton = remote(tmp_path)
    assert not triton.gpu
    for gpu in (True, False):
        announce(tmp_path, gpu)
        assert triton.ensure_running()
        assert triton.gpu == gpu


def test_each_life_is_a_generation_and_the_same_life_is_none(tmp_path: Path) -> None:
    announce(tmp_path)
    triton = remote(tmp_path)
    assert (triton.generation, triton.generation) == (1, 1)
    assert not triton.ensure_running()
    announce(tmp_path)
    assert triton.ensure_running()
    assert not triton.ensure_running()
    assert triton.generation == 2
