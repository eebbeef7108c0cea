"""A unit whose weights lie beside its graph: the same answers, one file, and nothing is copied that needn't be."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import treelite
from google.protobuf import text_format
from onnx import TensorProto, helper, numpy_helper
from tritonclient.grpc import model_config_pb2

from pipelines.evaluation.scorers import unit_answers, unit_scorer
from pipelines.export.parity import answers as rows_of_pairs
from pipelines.export.parity import choose_pairs
from pipelines.export.unit import ALIGNED, named, write_unit, write_unit_in_steps
from pipelines.features.columns import NULL
from pipelines.features.raw import signature as signature_of
from pipelines.models import mlp, neumf, tables
from pipelines.models.external_weights import ExternalWeights, LowersExternalWeights
from pipelines.models.families import FAMILIES
from pipelines.models.family import Trained
from pipelines.models.mlp import architecture_of
from pipelines.models.neural.model import NeuralModel
from pipelines.models.neural.onnx import lower
from pipelines.models.neural.weights import begin
from pipelines.models.tables import Table, check_size
from shared.contracts.families import MlpParams, NeumfParams
from shared.domain.errors import BadData, Invalid
from shared.serving.config import server_configs
from shared.serving.external import places
from shared.serving.signature import BLANK, OUTPUT, WEIGHTS, Signature
from shared.serving.tensors import tensors as shared_tensors
from tests.support.exported_units import Small, small
from tests.support.feature_graphs import of_keys
from tests.support.neural_model import any_weights

MODEL = "model.onnx"
NEURAL: dict[str, tuple[Any, Any]] = {"mlp": (mlp.plan, MlpParams), "neumf": (neumf.plan, NeumfParams)}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Small:
    return small(tmp_path_factory.mktemp("small"))


@pytest.fixture(scope="module")
def trained(world: Small) -> Callable[[str], Trained]:
    """Neural families with drawn weights: to train them takes a framework."""

    @cache
    def of(family: str) -> Trained:
        if family not in NEURAL:
            return world.train(family)
        plan, params = NEURAL[family]
        architecture = plan(world.graph, params(), None)
        return NeuralModel(architecture, any_weights(architecture))

    return of


def answers(world: Small, files: dict[str, Path]) -> Any:
    users, rows = np.arange(1, 30), np.arange(29) % len(world.items)
    return unit_scorer(files[MODEL], named(world.signature, files), world.raw)(users, rows)


def folder(path: Path) -> Path:
    path.mkdir()
    return path / MODEL


@pytest.mark.requirement("G-24")
def test_a_unit_with_its_weights_beside_it_answers_to_the_bit_as_one_that_has_them_inside(
    subtests: pytest.Subtests, world: Small, trained: Callable[[str], Trained], tmp_path: Path
) -> None:
    for family in ("popularity", "mf", "ease", "itemknn", "transitions", "mlp", "neumf", "blend"):
        with subtests.test(family=family):
            place = tmp_path / family
            place.mkdir()
            model = trained(family)
            inside = write_unit(world.graph, model, folder(place / "inside"))
            beside = write_unit(world.graph, model, folder(place / "beside"), inline=0)
            assert list(inside) == [MODEL]
            assert list(beside) == [MODEL, WEIGHTS]
            assert named(world.signature, inside).files == (MODEL,)
            assert named(world.signature, beside).files == (MODEL, WEIGHTS)
            assert np.array_equal(answers(world, inside), answers(world, beside))


def test_each_array_begins_with_a_page_and_the_graph_says_where(world: Small, trained: Callable[[str], Trained], tmp_path: Path) -> None:
    model = trained("mlp")
    assert isinstance(model, NeuralModel)
    files = write_unit(world.graph, model, tmp_path / MODEL, inline=0)
    content = files[WEIGHTS].read_bytes()
    graph = onnx.load(str(files[MODEL]), load_external_data=False).graph
    found = {one.name: one for one in graph.initializer if one.data_location == TensorProto.EXTERNAL}
    table = found["model/table_userId/embeddings"]
    said = {one.key: one.value for one in table.external_data}
    offset, length = int(said["offset"]), int(said["length"])
    assert said["location"] == WEIGHTS
    assert offset % ALIGNED == 0
    assert content[offset : offset + length] == model.weights["table_userId/embeddings"].tobytes()
    assert list(table.dims) == list(model.weights["table_userId/embeddings"].shape)
    assert table.doc_string == ""
    assert len(places(files[MODEL])) == len(found)


def test_the_vector_of_padding_is_zero_beside_the_graph_too(world: Small, trained: Callable[[str], Trained], tmp_path: Path) -> None:
    model = trained("mlp")
    assert isinstance(model, NeuralModel)
    files = write_unit(world.graph, model, tmp_path / MODEL, inline=0)
    found = {one.name: numpy_helper.to_array(one) for one in onnx.load(str(files[MODEL])).graph.initializer}
    table, mine = found["model/table_genres/embeddings"], model.weights["table_genres/embeddings"]
    assert not table[NULL].any()
    assert mine[NULL].any()
    assert np.array_equal(np.delete(table, NULL, axis=0), np.delete(mine, NULL, axis=0))


def test_what_outgrows_the_limit_goes_beside_and_small_arrays_stay(tmp_path: Path) -> None:
    graph = of_keys(40_000, 50)
    model = NeuralModel(
        layout := architecture_of((Table("user", 40_002, 16, None), Table("item", 52, 16, None)), MlpParams()), begin(layout, 1)
    )
    files = write_unit(graph, model, tmp_path / MODEL, inline=1 << 20)
    (place,) = places(files[MODEL])
    assert place.every("length") == [str(40_002 * 16 * 4)]
    assert files[WEIGHTS].stat().st_size == 40_002 * 16 * 4


class Lowered:
    """A family's own model, which knows nothing of files beside a graph."""

    def __init__(self, weight: Any) -> None:
        self.weight = weight

    def lower(self) -> Any:
        codes = [helper.make_tensor_value_info(name, TensorProto.INT32, ["N"]) for name in ("user", "item")]
        score = helper.make_tensor_value_info("score", TensorProto.FLOAT, ["N"])
        node = helper.make_node("Gather", ["weight", "item"], ["score"])
        graph = helper.make_graph([node], "own", codes, [score], [self.weight])
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_a_family_that_lowers_as_ever_has_its_large_arrays_taken_out_of_its_graph(tmp_path: Path) -> None:
    weight = np.arange(52, dtype=np.float32)
    model: Any = Lowered(numpy_helper.from_array(weight, "weight"))
    assert not isinstance(model, LowersExternalWeights)
    files = write_unit(of_keys(40, 50), model, tmp_path / MODEL, inline=0)
    assert weight.tobytes() in files[WEIGHTS].read_bytes()
    found = {one.name: numpy_helper.to_array(one) for one in onnx.load(str(files[MODEL])).graph.initializer}
    assert found["model/weight"].tolist() == weight.tolist()


def test_a_family_whose_graph_takes_a_file_of_its_own_is_refused(tmp_path: Path) -> None:
    tensor = TensorProto(name="weight", data_type=TensorProto.FLOAT, dims=[52], data_location=TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value="/etc/passwd")
    model: Any = Lowered(tensor)
    with pytest.raises(Invalid, match="reads 'weight' from a file: use the array itself"):
        write_unit(of_keys(40, 50), model, tmp_path / MODEL)


def test_a_unit_without_the_file_that_its_graph_names_is_refused(world: Small, trained: Callable[[str], Trained], tmp_path: Path) -> None:
    files = write_unit(world.graph, trained("mf"), tmp_path / MODEL, inline=0)
    with pytest.raises(BadData, match=r"reads weights from weights\.bin, which is missing"):
        unit_scorer(files[MODEL], world.signature, world.raw)
    files[WEIGHTS].write_bytes(files[WEIGHTS].read_bytes()[:-8])
    with pytest.raises(BadData, match=r"reads \d+ bytes of weights\.bin from \d+ on, which has"):
        unit_scorer(files[MODEL], named(world.signature, files), world.raw)


def test_lowering_and_writing_a_large_table_copies_none_of_it(tmp_path: Path) -> None:
    count = 250_000
    layout = architecture_of((Table("user", count, 64, None), Table("item", 52, 64, None)), MlpParams())
    model = NeuralModel(layout, begin(layout, 1))  # 64 MB
    graph = of_keys(40, 50)
    lower(layout, {name: array[:2] for name, array in model.weights.items()})  # onnx is imported
    tracemalloc.start()
    try:
        files = write_unit(graph, model, tmp_path / MODEL, inline=1 << 20)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert files[WEIGHTS].stat().st_size == count * 256
    assert peak < 8e6


def test_chunks_are_bounded_and_hold_every_row_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipelines.models.external_weights._CHUNK", 64)
    beside = ExternalWeights(0)
    array = np.arange(100, dtype=np.float32).reshape(20, 5)
    held = beside.of(beside.tensor(array, "x", blank=7))
    assert held is not None
    parts = list(held.chunks())
    assert max(one.nbytes for one in parts) <= 64
    expected = array.copy()
    expected[7] = 0
    assert np.array_equal(np.concatenate(parts), expected)
    assert array[7].any()


@pytest.mark.requirement("G-24")
def test_before_training_memory_is_what_refuses_and_not_two_gigabytes() -> None:
    graph = of_keys(40, 50)
    check_size(graph, 5_000_000_000, memory=6_000_000_000)
    with pytest.raises(Invalid, match=r"weights take 5\.0 GB, but 4\.0 GB are available: choose a smaller width or .* more memory"):
        check_size(graph, 5_000_000_000, memory=4_000_000_000)


def test_vocabularies_still_have_to_fit_into_the_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "EXPORT_LIMIT", 1000)
    with pytest.raises(Invalid, match=r"the vocabularies take .* choose a larger min_count or a smaller serve\.vocabulary_limit"):
        check_size(of_keys(40, 50), 8, memory=1 << 30)


def test_every_family_of_ours_with_large_arrays_gives_them_beside(trained: Callable[[str], Trained]) -> None:
    assert [
        name
        for name in FAMILIES
        if name in ("mf", "ease", "itemknn", "transitions", "mlp", "neumf") and not isinstance(trained(name), LowersExternalWeights)
    ] == []


def run_steps(files: dict[str, Path], signature: Signature, rows: dict[str, Any]) -> dict[str, Any]:
    """Runs the steps one after the other, as the server would, and returns all tensors."""
    tensors: dict[str, Any] = {name: array.astype(object) if array.dtype.kind in "US" else array for name, array in rows.items()}
    for step in signature.steps:
        feed = {tensor.name: tensors[tensor.tensor] for tensor in step.inputs}
        assert {len(array) for array in feed.values()} == {len(rows[signature.user])} or not step.batches
        if step.backend == "fil":
            (matrix,) = feed.values()
            values = [treelite.gtil.predict(treelite.Model.deserialize(files[step.file]), matrix).reshape(-1, 1)]
        else:
            values = onnxruntime.InferenceSession(str(files[step.file])).run([tensor.name for tensor in step.outputs], feed)
        tensors |= {tensor.tensor: value for tensor, value in zip(step.outputs, values, strict=True)}
    return tensors


@pytest.mark.requirement("T-12", "T-13")
def test_the_steps_for_gpus_compute_what_the_unit_computes_and_look_up_the_same_weights(
    subtests: pytest.Subtests, world: Small, trained: Callable[[str], Trained], tmp_path: Path
) -> None:
    for name in ("mlp", "neumf", "xgboost", "lightgbm", "forest"):
        with subtests.test(model=name):
            model = trained(name) if name in NEURAL else world.train("gbm", params={"library": name, "trees": 5})
            if isinstance(model, NeuralModel):  # with smaller weights, because large ones saturate the score
                weights = {path: array / (1000 if name == "mlp" else 4) for path, array in model.weights.items()}
                model = NeuralModel(model.architecture, weights)
            path = folder(tmp_path / name)
            files, signature = write_unit_in_steps(world.graph, model, world.signature, path, smallest=1000)
            signature = named(signature, files)
            assert signature.gpu_files == (*(step.file for step in signature.steps), WEIGHTS)
            columns = world.rows(model)
            rows = {tensor.name: columns[tensor.name] for tensor in signature.tensors}
            rows |= {"year": np.where(np.arange(len(rows["year"])) % 5, rows["year"], BLANK["int64"])}
            results = run_steps(files, signature, rows)
            whole = unit_answers(files[MODEL], signature, rows)
            assert np.abs(results[OUTPUT].ravel() - whole).max() < 1e-6
            assert len(np.unique(whole)) > 20
            for step in files.keys() & {"network.onnx", "features.onnx"}:
                mine, all_places = places(files[step]), places(files[MODEL])
                assert {place.words for place in mine} <= {place.words for place in all_places}
            texts = server_configs("eyas-m_1-7", signature, [7], gpu=True)
            read = {model: text_format.Parse(text, model_config_pb2.ModelConfig()) for model, text in texts.items()}
            *steps, ensemble = read.values()
            assert (ensemble.platform, [step.model_name for step in ensemble.ensemble_scheduling.step]) == ("ensemble", [*texts][:-1])
            kinds = [config.instance_group[0].kind for config in steps]
            assert kinds.count(model_config_pb2.ModelInstanceGroup.KIND_GPU) == 1
            (on_gpu,) = (config for config in steps if config.instance_group[0].kind == model_config_pb2.ModelInstanceGroup.KIND_GPU)
            assert on_gpu.backend == ("onnxruntime" if name in NEURAL else "fil")
            assert on_gpu.HasField("dynamic_batching") and on_gpu.model_warmup[0].batch_size == 1


def test_a_network_that_shares_a_list_among_rows_does_not_batch(tmp_path: Path) -> None:
    """Its rows name their list by its place in the call, so that calls cannot be joined."""
    world = small(tmp_path, reads="keys")
    recent, model = world.graph.recent(3), world.train("ease")
    served = signature_of(world.graph, world.serve, recent)
    files, signature = write_unit_in_steps(world.graph, model, served, tmp_path / MODEL, recent=recent)
    assert [step.batches for step in signature.steps] == [False, False]
    users, numbers = choose_pairs(world.graph, lambda name: world.folder / name, len(world.items), seed=1)
    rows = rows_of_pairs(world.graph, model, world.raw, users, numbers, served, recent)
    feed = shared_tensors(served, {column.name: rows[column.name] for column in served.inputs})
    results = run_steps(files, signature, feed)
    assert np.abs(results[OUTPUT].ravel() - unit_answers(files[MODEL], served, rows)).max() < 1e-6
