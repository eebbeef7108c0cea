"""A network is the same in NumPy and in ONNX, whatever it is made of; and no framework is loaded for either."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

from pipelines.inputs.tables import Codes
from pipelines.models.neural.architecture import Architecture
from pipelines.models.neural.model import NeuralModel
from pipelines.models.neural.network import KINDS, Add, Dense, Join, Network, RowSum, read_network
from pipelines.models.neural.plain import sigmoid
from pipelines.models.neural.weights import Weights, begin
from pipelines.models.tables import Table
from shared.domain.errors import Invalid
from tests.support import neural_model


def _trained(architecture: Architecture) -> Weights:
    """Weights that no initialiser gives."""
    random = np.random.default_rng(4)
    begun = begin(architecture, 1)
    return {path: (random.random(one.shape) - 0.5 * (not path.endswith("/variance"))).astype(np.float32) for path, one in begun.items()}


def _by_onnx(model: NeuralModel, columns: Codes) -> Any:
    lowered = model.lower()
    onnx.checker.check_model(lowered, full_check=True)
    session = onnxruntime.InferenceSession(lowered.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, {one.name: columns[one.name] for one in session.get_inputs()})[0]


@pytest.mark.requirement("T-08", "T-13")
def test_a_lowered_network_scores_as_its_arrays_do(subtests: pytest.Subtests) -> None:
    architectures = {
        "mlp": neural_model.mlp(),
        "mlp with batch norm and dropout": neural_model.mlp(batch_norm=True, dropout=0.3),
        "dlrm": neural_model.dlrm(),
        "dlrm with squares": neural_model.dlrm(itself=True),
        "dlrm with its embeddings": neural_model.dlrm(joined=True),
        "wide_deep": neural_model.wide_deep(),
        "deepfm": neural_model.deepfm(),
        "dcn": neural_model.dcn(),
        "towers": neural_model.towers(),
        "everything": neural_model.everything(0.5),
    }
    for (name, architecture), rows in product(architectures.items(), (1, 300)):
        with subtests.test(msg=name, rows=rows):
            model, columns = NeuralModel(architecture, _trained(architecture)), neural_model.batch(3, rows).columns
            found = _by_onnx(model, columns)
            assert found.shape == (rows,) and found.dtype == np.float32 and (rows == 1 or np.ptp(found) > 1e-3)
            np.testing.assert_allclose(found, model.score(columns), atol=2e-6)


def test_every_kind_of_node_is_in_the_network_that_is_tried() -> None:
    assert {one.kind for one in neural_model.everything().network.nodes} == set(KINDS)
    assert read_network(neural_model.everything(0.5).network.document()) == neural_model.everything(0.5).network


def test_a_feature_may_be_called_as_a_score_is() -> None:
    tables = (Table("score", 5, 4, None), Table("t0", 5, 4, None))
    architecture = Architecture("mlp", tables, (), Network((Join("a", ("score", "t0")), Dense("b", ("a",), 1, "linear"))))
    model, columns = NeuralModel(architecture, begin(architecture, 1)), {name: np.arange(5, dtype=np.int32) for name in ("score", "t0")}
    np.testing.assert_allclose(_by_onnx(model, columns), model.score(columns), atol=1e-6)


def test_a_network_that_is_none_is_refused() -> None:
    with pytest.raises(Invalid, match="network node 'b': inputs must have the same width, got 8, 4"):
        Network((Add("b", ("user", "year")),)).widths({"user": 8, "year": 4})
    with pytest.raises(Invalid, match="the network ends with 8 numbers per row at 'b': it must end with one"):
        Network((Join("b", ("user",)),)).widths({"user": 8})
    with pytest.raises(Invalid, match="has an unknown kind"):
        read_network([{"kind": "attention", "name": "a", "of": []}])
    assert Network((RowSum("b", ("user",)),)).widths({"user": 8})["b"] == 1


def test_a_sigmoid_of_large_numbers_is_a_number() -> None:
    with np.errstate(all="raise", under="ignore"):
        np.testing.assert_allclose(sigmoid(np.array([-1000, -1, 0, 1, 1000], np.float32)), [0, 0.26894142, 0.5, 0.7310586, 1], rtol=1e-6)
