"""Conformance suite of ModelServer. A test module subclasses it and provides the fixture `bench`."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pytest

from shared.domain.errors import Unavailable
from shared.ports import ArtifactStore, ModelServer, ServedUnit
from shared.testing.askers import FEED, Askers, scores
from shared.testing.waiting import wait_for


class Bench(Protocol):
    """A server and units for the server: version n scores a row as `user + n * item`."""

    server: ModelServer
    recommender: str
    """A new name for each test."""

    def unit(self, number: int, *, tags: bool = False) -> ServedUnit:
        """Returns a unit; with `tags`, the unit takes one more input: 'tags', two texts per row."""

    def broken(self, number: int) -> ServedUnit:
        """Returns a unit that can't be loaded."""

    def restart(self) -> None:
        """Kills the server and starts it again, as its owner's loop does."""


class ModelServerSuite:
    def test_a_placed_version_answers_one_score_a_row(self, bench: Bench) -> None:
        assert bench.server.place(bench.recommender, [bench.unit(1)]) == {}
        actual = bench.server.score(bench.recommender, 1, FEED)
        assert actual.dtype == np.float32
        assert actual.tolist() == scores(1)
        assert bench.server.answering(bench.recommender) == {1}

    def test_versions_stand_side_by_side_and_the_caller_names_one(self, bench: Bench) -> None:
        bench.server.place(bench.recommender, [bench.unit(1), bench.unit(2)])
        assert bench.server.score(bench.recommender, 1, FEED).tolist() == scores(1)
        assert bench.server.score(bench.recommender, 2, FEED).tolist() == scores(2)
        assert bench.server.answering(bench.recommender) == {1, 2}

    def test_a_version_that_takes_other_inputs_stands_beside_its_elder(self, bench: Bench) -> None:
        assert bench.server.place(bench.recommender, [bench.unit(1), bench.unit(2, tags=True)]) == {}
        assert bench.server.score(bench.recommender, 1, FEED).tolist() == scores(1)
        assert bench.server.score(bench.recommender, 2, FEED).tolist() == scores(2)

    def test_placing_the_same_again_changes_nothing(self, bench: Bench) -> None:
        units = [bench.unit(1)]
        assert bench.server.place(bench.recommender, units) == bench.server.place(bench.recommender, units) == {}
        assert bench.server.answering(bench.recommender) == {1}

    def test_a_version_that_was_never_placed_is_unavailable(self, bench: Bench) -> None:
        with pytest.raises(Unavailable):
            bench.server.score(bench.recommender, 1, FEED)
        assert bench.server.answering(bench.recommender) == frozenset()

    def test_a_version_that_is_no_longer_placed_stops_answering_and_the_others_go_on(self, bench: Bench) -> None:
        bench.server.place(bench.recommender, [bench.unit(1), bench.unit(2)])
        bench.server.place(bench.recommender, [bench.unit(2)])
        with pytest.raises(Unavailable):
            bench.server.score(bench.recommender, 1, FEED)
        assert bench.server.score(bench.recommender, 2, FEED).tolist() == scores(2)
        assert bench.server.answering(bench.recommender) == {2}

    def test_a_version_comes_back_after_it_left(self, bench: Bench) -> None:
        bench.server.place(bench.recommender, [bench.unit(1)])
        bench.server.place(bench.recommender, [])
        assert bench.server.answering(bench.recommender) == frozenset()
        bench.server.place(bench.recommender, [bench.unit(1)])
        assert bench.server.score(bench.recommender, 1, FEED).tolist() == scores(1)

    def test_a_broken_version_is_left_out_with_its_reason_and_the_others_serve(self, bench: Bench) -> None:
        faults = bench.server.place(bench.recommender, [bench.unit(1), bench.broken(2)])
        assert set(faults) == {2}
        assert faults[2]
        assert bench.server.answering(bench.recommender) == {1}
        with pytest.raises(Unavailable):
            bench.server.score(bench.recommender, 2, FEED)

    def test_a_request_is_never_disturbed_by_placing(self, bench: Bench) -> None:
        bench.server.place(bench.recommender, [bench.unit(1)])
        with Askers(bench.server, bench.recommender, 1) as traffic:
            bench.server.place(bench.recommender, [bench.unit(1), bench.unit(2)])
            bench.server.place(bench.recommender, [bench.unit(1), bench.unit(2), bench.broken(3)])
            bench.server.place(bench.recommender, [bench.unit(1), bench.unit(4, tags=True)])
            bench.server.place(bench.recommender, [bench.unit(1)])
        assert traffic.failures == []
        assert traffic.answered > 0

    def test_successes_are_counted_over_removals_and_restarts(self, bench: Bench) -> None:
        key = (bench.recommender, 1)
        bench.server.place(bench.recommender, [bench.unit(1)])
        before = bench.server.successes().get(key, 0)
        for _ in range(5):
            bench.server.score(bench.recommender, 1, FEED)
        # Triton counts a request shortly after its response.
        counted = wait_for(lambda: (now := bench.server.successes()[key]) >= before + 5 and now)
        bench.server.place(bench.recommender, [])
        assert bench.server.successes()[key] >= counted
        bench.server.place(bench.recommender, [bench.unit(1)])
        bench.restart()
        bench.server.score(bench.recommender, 1, FEED)
        assert wait_for(lambda: bench.server.successes()[key] > counted)

    def test_a_restarted_server_serves_what_was_placed(self, bench: Bench) -> None:
        bench.server.place(bench.recommender, [bench.unit(1), bench.unit(2, tags=True)])
        bench.restart()
        assert bench.server.answering(bench.recommender) == {1, 2}

    def test_it_says_what_it_is_and_what_it_has_loaded(self, bench: Bench) -> None:
        bench.server.place(bench.recommender, [bench.unit(1)])
        info = bench.server.info()
        assert info.version
        models = [model for model in info.models if model["recommender"] == bench.recommender]
        assert [(model["version"], model["state"]) for model in models] == [("1", "READY")]


def tiny_unit(store: ArtifactStore, recommender: str, number: int, *, tags: bool = False, model: bytes | None = None) -> ServedUnit:
    """Stores a real unit: `user + number * item` as ONNX (needs the package onnx), or the bytes of `model`."""
    inputs: list[dict[str, Any]] = [
        {"name": "user", "dtype": "int64", "side": "user"},
        {"name": "item", "dtype": "int64", "side": "item"},
    ]
    if tags:
        inputs.append({"name": "tags", "dtype": "string", "width": 2, "side": "item"})
    with tempfile.TemporaryDirectory() as folder:
        model_path, signature_path = Path(folder) / "model.onnx", Path(folder) / "signature.json"
        model_path.write_bytes(tiny_model(number, tags=tags) if model is None else model)
        signature_path.write_text(json.dumps({"user": "user", "item": "item", "inputs": inputs}))
        files = {path.name: store.put(path) for path in (model_path, signature_path)}
    return ServedUnit(recommender, number, files)


def tiny_model(factor: float, *, tags: bool = False) -> bytes:
    """Returns an ONNX model of `score = user + factor * item`; with `tags`, the texts are an input without effect."""
    from onnx import TensorProto, helper

    nodes = [
        helper.make_node("Cast", ["user"], ["user_f"], to=TensorProto.FLOAT),
        helper.make_node("Cast", ["item"], ["item_f"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["item_f", "factor"], ["weighed"]),
        helper.make_node("Add", ["user_f", "weighed"], ["bare" if tags else "score"]),
    ]
    inputs = [helper.make_tensor_value_info(name, TensorProto.INT64, ["rows"]) for name in ("user", "item")]
    constants = [helper.make_tensor("factor", TensorProto.FLOAT, [], [float(factor)])]
    domains = [helper.make_opsetid("", 17)]
    if tags:
        inputs.append(helper.make_tensor_value_info("tags", TensorProto.STRING, ["rows", 2]))
        domains.append(helper.make_opsetid("ai.onnx.ml", 2))
        constants.append(helper.make_tensor("axes", TensorProto.INT64, [1], [1]))
        nodes += [
            helper.make_node(
                "LabelEncoder", ["tags"], ["known"], domain="ai.onnx.ml", keys_strings=["a"], values_floats=[0.0], default_float=0.0
            ),
            helper.make_node("ReduceSum", ["known", "axes"], ["nothing"], keepdims=0),
            helper.make_node("Add", ["bare", "nothing"], ["score"]),
        ]
    score = helper.make_tensor_value_info("score", TensorProto.FLOAT, ["rows"])
    graph = helper.make_graph(nodes, "tiny", inputs, [score], constants)
    return bytes(helper.make_model(graph, opset_imports=domains, ir_version=8).SerializeToString())
