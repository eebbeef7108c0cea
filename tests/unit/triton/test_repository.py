"""The model repository on disk: whole folders, named versions, nothing outside its root."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from services.triton.repository import SIGNATURE, ModelRepository, model_name, recommender_of
from shared.artifacts import FsspecArtifacts
from shared.domain.errors import BadData, Damaged, Invalid, NotFound
from shared.ports import ServedUnit
from shared.serving.signature import WEIGHTS, Feature, Input, Signature, Step
from shared.testing.model_server_suite import tiny_unit
from tests.support import external_weights

MODEL = "model.onnx"
STEPS = (
    Step(file="features.onnx", device="cpu", batches=False, inputs=(), outputs=()),
    Step(file="trees.tl", device="gpu", batches=True, inputs=(), outputs=()),
)


@pytest.fixture
def store(tmp_path: Path) -> FsspecArtifacts:
    return FsspecArtifacts(str(tmp_path / "artifacts"))


@pytest.fixture
def repository(tmp_path: Path, store: FsspecArtifacts) -> ModelRepository:
    return ModelRepository(tmp_path / "server", store)


def files(repository: ModelRepository) -> set[str]:
    return {str(path.relative_to(repository.root)) for path in repository.root.rglob("*") if path.is_file()}


def test_a_version_lies_there_whole(repository: ModelRepository, store: FsspecArtifacts) -> None:
    placed = repository.add(tiny_unit(store, "movies", 3, model=b"content"))
    assert files(repository) == {f"{placed.model}/3/model.onnx", f"{placed.model}/3/signature.json"}


def test_what_is_there_is_not_touched_again(repository: ModelRepository, store: FsspecArtifacts) -> None:
    unit = tiny_unit(store, "movies", 1, model=b"content")
    folder = repository.root / repository.add(unit).model / "1"
    before = (folder.stat().st_mtime_ns, (folder / MODEL).stat().st_mtime_ns)
    repository.add(unit)
    assert (folder.stat().st_mtime_ns, (folder / MODEL).stat().st_mtime_ns) == before


@pytest.mark.requirement("G-11")
@pytest.mark.parametrize("name", [MODEL, SIGNATURE])
@pytest.mark.parametrize("again", [False, True], ids=["same life", "after a restart"])
def test_what_was_damaged_on_disk_is_fetched_again(
    repository: ModelRepository, store: FsspecArtifacts, tmp_path: Path, name: str, again: bool
) -> None:
    unit = tiny_unit(store, "movies", 1, model=b"content")
    path = repository.root / repository.add(unit).model / "1" / name
    good = path.read_bytes()
    path.write_bytes(good[:-1] + bytes([good[-1] ^ 1]))
    (ModelRepository(tmp_path / "server", store) if again else repository).add(unit)
    assert path.read_bytes() == good


@pytest.mark.requirement("G-24")
def test_weights_beside_a_graph_lie_in_its_folder_and_in_its_trials(repository: ModelRepository, store: FsspecArtifacts) -> None:
    placed = repository.add(external_weights.unit(store, "movies", 3))
    repository.add_trial(placed)
    trial = {f"{placed.trial}/config.pbtxt", f"{placed.trial}/3/{MODEL}", f"{placed.trial}/3/{WEIGHTS}"}
    assert files(repository) == {f"{placed.model}/3/{name}" for name in (MODEL, WEIGHTS, SIGNATURE)} | trial
    assert (repository.root / placed.model / "3" / WEIGHTS).read_bytes() == external_weights.weights(3)
    assert repository.add(tiny_unit(store, "movies", 4)).model == placed.model, "where weights lie changes nothing for callers"


@pytest.mark.requirement("G-24", "G-11")
def test_damaged_or_missing_weights_are_fetched_again(repository: ModelRepository, store: FsspecArtifacts) -> None:
    unit = external_weights.unit(store, "movies", 3)
    path = repository.root / repository.add(unit).model / "3" / WEIGHTS
    for harm in (path.unlink, lambda: path.write_bytes(external_weights.weights(4))):
        harm()
        repository.add(unit)
        assert path.read_bytes() == external_weights.weights(3)


def test_one_graph_with_other_weights_is_other_content_to_a_trial(repository: ModelRepository, store: FsspecArtifacts) -> None:
    first, second = (repository.add(external_weights.unit(store, "movies", number)) for number in (3, 4))
    assert first.model == second.model
    assert first.proof != second.proof


@pytest.mark.requirement("G-24")
def test_a_graph_that_looks_elsewhere_for_weights_never_lies_before_triton(
    repository: ModelRepository, store: FsspecArtifacts, subtests: pytest.Subtests
) -> None:
    for location in ("/etc/passwd", "../3/weights.bin", "signature.json"):
        with subtests.test(location=location):
            with pytest.raises(BadData, match=r"model\.onnx: the graph reads weights from"):
                repository.add(external_weights.unit(store, "movies", 3, location))
            assert files(repository) == set()


def test_a_graph_whose_signature_names_no_weights_is_refused_if_it_takes_any(repository: ModelRepository, store: FsspecArtifacts) -> None:
    unit = tiny_unit(store, "movies", 3, model=external_weights.model())
    with pytest.raises(BadData, match=r"reads weights from weights\.bin, which is missing"):
        repository.add(unit)
    with pytest.raises(Invalid, match=r"movies version 3 has no weights\.bin: the export did not publish it"):
        repository.add(
            ServedUnit("movies", 3, {name: file for name, file in external_weights.unit(store, "m", 3).files.items() if name != WEIGHTS})
        )


@pytest.mark.requirement("G-11")
@pytest.mark.parametrize("name", [MODEL, SIGNATURE])
def test_what_is_damaged_in_the_store_never_lies_before_triton(
    repository: ModelRepository, store: FsspecArtifacts, tmp_path: Path, name: str
) -> None:
    unit = tiny_unit(store, "movies", 1, model=b"content")
    sha = unit.files[name].sha256
    blob = tmp_path / "artifacts" / "blobs" / sha[:2] / sha
    blob.write_bytes(blob.read_bytes().replace(b"e", b"f", 1))
    with pytest.raises(Damaged, match=sha[:12]):
        repository.add(unit)
    assert files(repository) == set()


def test_a_fetch_that_fails_leaves_no_folder(repository: ModelRepository, store: FsspecArtifacts, tmp_path: Path) -> None:
    unit = tiny_unit(store, "movies", 1, model=b"content")
    sha = unit.files[MODEL].sha256
    (tmp_path / "artifacts" / "blobs" / sha[:2] / sha).unlink()
    with pytest.raises(NotFound):
        repository.add(unit)
    assert files(repository) == set()


def test_no_name_leads_out_of_the_repository(repository: ModelRepository, store: FsspecArtifacts, subtests: pytest.Subtests) -> None:
    for name in ("../outside", "Movies", "a_b", "", "a/b"):
        with subtests.test(name=name):
            unit = tiny_unit(store, "movies", 1, model=b"content")
            with pytest.raises(Invalid):
                repository.add(ServedUnit(name, 1, unit.files))


def test_a_unit_without_a_signature_is_refused(repository: ModelRepository, store: FsspecArtifacts) -> None:
    unit = tiny_unit(store, "movies", 1, model=b"content")
    with pytest.raises(Invalid, match=r"signature\.json"):
        repository.add(ServedUnit("movies", 1, {MODEL: unit.files[MODEL]}))


def test_versions_with_other_inputs_get_a_model_of_their_own(repository: ModelRepository, store: FsspecArtifacts) -> None:
    first, second, third = (repository.add(tiny_unit(store, "movies", n, tags=n == 2, model=b"content")) for n in (1, 2, 3))
    assert first.model == third.model != second.model
    assert repository.models("movies") == {first.model: {1, 3}, second.model: {2}}


def test_whatever_is_configured_is_in_the_models_name() -> None:
    keys = {"inputs": (Input(name="u", dtype="int64", side="user"), Input(name="i", dtype="int64", side="item"))}
    plain = Signature(user="u", item="i", **keys)
    feature = Feature(column="u", output="codes/u")
    others = (Signature(user="u", item="i", **keys, **more) for more in ({"features": (feature,)}, {"instances": 2}, {"warm_up": 8}))
    names = {model_name("m", one, 1) for one in (plain, *others)}
    assert len(names) == 4
    lists = [Input(name="g", dtype="int64", width=3, side="item", lists=how) for how in ("padded", "offsets")]  # type: ignore[arg-type]
    padded, offsets = (model_name("m", Signature(user="u", item="i", inputs=(*keys["inputs"], one)), 1) for one in lists)
    assert padded != offsets
    assert model_name("m", plain, 1) == "eyas-m_e9734840", "what serves keeps its name over an upgrade"


def test_trials_of_an_earlier_life_are_removed(repository: ModelRepository, store: FsspecArtifacts, tmp_path: Path) -> None:
    repository.add_trial(repository.add(tiny_unit(store, "movies", 1, model=b"content")))
    assert any("trial" in name for name in files(repository))
    ModelRepository(tmp_path / "server", store).tidy()
    assert not any("trial" in name for name in files(repository))


def test_a_models_name_tells_its_recommender_and_a_trial_is_nobodys() -> None:
    signature = Signature(
        user="u", item="i", inputs=(Input(name="u", dtype="int64", side="user"), Input(name="i", dtype="int64", side="item"))
    )
    assert recommender_of(model_name("my-movies", signature, 1)) == "my-movies"
    assert recommender_of("eyas_trial-my-movies-1") is None
    assert recommender_of("eyas-movies") is None
    assert recommender_of("other") is None


def stepped(store: FsspecArtifacts, number: int) -> ServedUnit:
    """A unit in steps, whose files have their own names as contents."""
    tiny = tiny_unit(store, "movies", number, model=b"content")
    signature = Signature.model_validate(json.loads(store.read(tiny.files[SIGNATURE]))).model_copy(update={"steps": STEPS})
    texts = {name: name.encode() for name in signature.gpu_files} | {SIGNATURE: signature.model_dump_json().encode()}
    return ServedUnit(
        "movies", number, dict(tiny.files) | {name: external_weights.stored(store, name, text) for name, text in texts.items()}
    )


@pytest.mark.requirement("T-12", "T-13")
def test_a_server_with_a_gpu_gets_an_ensemble_for_each_version_and_another_server_one_model(
    repository: ModelRepository, store: FsspecArtifacts, tmp_path: Path
) -> None:
    with_gpu = ModelRepository(tmp_path / "gpu", store, lambda: True)
    units = [stepped(store, number) for number in (3, 4)]
    three, four = (with_gpu.add(unit) for unit in units)
    assert three.model.removesuffix("-3") == four.model.removesuffix("-4")
    assert recommender_of(three.model) == "movies"
    with_gpu.configure(three.model, three.signature, [3])
    steps = {f"{three.model}.features/3/model.onnx": "features.onnx", f"{three.model}.trees/3/checkpoint.tl": "trees.tl"}
    configured = {f"{model}/config.pbtxt" for model in (three.model, f"{three.model}.features", f"{three.model}.trees")}
    names = (*three.signature.gpu_files, SIGNATURE)
    assert (
        files(with_gpu) == {f"{placed.model}/{placed.number}/{name}" for placed in (three, four) for name in names} | {*steps} | configured
    )
    assert {name: (with_gpu.root / name).read_text() for name in steps} == steps
    assert with_gpu.models("movies") == {three.model: {3}, four.model: {4}}, "steps are no models of their own"
    (with_gpu.root / f"{three.model}/3/trees.tl").write_text("damaged")
    with_gpu.add(units[0])
    with_gpu.configure(three.model, three.signature, [3])
    assert {name: (with_gpu.root / name).read_text() for name in steps} == steps
    with_gpu.remove_model(three.model)
    assert {name.split("/")[0] for name in files(with_gpu)} == {four.model}

    placed = repository.add(units[0])
    repository.configure(placed.model, placed.signature, [3])
    assert placed.model == three.model, "requests name the same model, whatever the server has"
    assert files(repository) == {f"{placed.model}/{name}" for name in ("config.pbtxt", f"3/{MODEL}", f"3/{SIGNATURE}")}
    assert placed.proof != three.proof


def test_a_step_that_looks_elsewhere_for_weights_never_lies_before_triton(store: FsspecArtifacts, tmp_path: Path) -> None:
    unit = stepped(store, 3)
    harmful = external_weights.stored(store, "features.onnx", external_weights.model("/etc/passwd"))
    with pytest.raises(BadData, match=r"features\.onnx: the graph reads weights from"):
        ModelRepository(tmp_path / "gpu", store, lambda: True).add(ServedUnit("movies", 3, dict(unit.files) | {"features.onnx": harmful}))
