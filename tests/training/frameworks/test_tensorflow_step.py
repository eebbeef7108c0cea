"""One step on TensorFlow: the gradient is the true one, rows that no batch reads stay as they are, and what is kept goes on as it was."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from pipelines.inputs.batches import TrainingBatch
from pipelines.models.neural import scaling
from pipelines.models.neural.architecture import Architecture
from pipelines.models.neural.frameworks import load_framework
from pipelines.models.neural.frameworks.protocol import Framework
from pipelines.models.neural.losses import Loss
from pipelines.models.neural.plain import score, sigmoid
from pipelines.models.neural.step import LOGISTIC, NeuralStep, StepOptions
from pipelines.models.neural.weights import Weights, begin
from shared.domain.errors import Conflict
from tests.support import neural_model

Made = Callable[..., NeuralStep]
ARCHITECTURES = (neural_model.mlp(), neural_model.dlrm(), neural_model.wide_deep(), neural_model.everything())


@pytest.fixture(scope="module")
def framework() -> Framework:
    return load_framework("tensorflow")


@pytest.fixture(params=[8_192, 0], ids=["dense", "sparse"])
def made(framework: Framework, request: pytest.FixtureRequest) -> Made:
    """Steps that update tables densely, or only the rows of a batch."""

    def make(architecture: Architecture | None = None, weights: Weights | None = None, loss: Loss = LOGISTIC, **how: Any) -> NeuralStep:
        architecture = architecture or neural_model.mlp()
        return NeuralStep(
            framework,
            architecture,
            weights or begin(architecture, 7),
            StepOptions(**{"learning_rate": 0.02, "dense_rows": request.param} | how),
            loss,
        )

    return make


def _loss(architecture: Architecture, weights: Weights, batch: TrainingBatch) -> float:
    """In double precision, by the plain arrays."""
    wide = {path: one.astype(np.float64) for path, one in weights.items()}
    found = _outputs(architecture, wide, batch)
    if architecture.family == "two_tower":
        return _softmax(found["user_vector"], found["item_vector"], batch.columns["item"], neural_model.in_batch().chances)
    logits = found["score"][:, 0]
    return float(np.mean(np.logaddexp(0, logits) - logits * batch.labels))


def _softmax(users: Any, items: Any, codes: Any, chances: Any) -> float:
    """Row by row, as it is written down: the own item's share among itself and the rows of other items."""
    losses = []
    for row, user in enumerate(users):
        others = [place for place in range(len(codes)) if codes[place] != codes[row]]
        shares = np.array([np.exp(user @ items[place]) / np.exp(float(chances[codes[place]])) for place in (row, *others)])
        losses.append(-np.log(shares[0] / shares.sum()))
    return float(np.mean(losses))


def _outputs(architecture: Architecture, weights: Any, batch: TrainingBatch) -> Any:
    from pipelines.models.neural.plain import NumpyOperations, looked_up

    features = {
        one.column: looked_up(one, weights[f"table_{one.column}/embeddings"], batch.columns[one.column]) for one in architecture.tables
    }
    features |= {name: batch.columns[name][:, None] if width is None else batch.columns[name] for name, width in architecture.numbers}
    return architecture.network.outputs(NumpyOperations(weights), features)


@pytest.mark.requirement("T-08", "T-09")
@pytest.mark.parametrize(
    ("architecture", "loss"),
    [
        (neural_model.mlp(), LOGISTIC),
        (neural_model.dlrm(), LOGISTIC),
        (neural_model.dlrm(itself=True, bottom=()), LOGISTIC),
        (neural_model.wide_deep(), LOGISTIC),
        (neural_model.towers(), neural_model.in_batch()),
        (neural_model.towers(normalise=False, temperature=0.1), neural_model.in_batch()),
    ],
)
def test_a_step_of_sgd_goes_down_the_true_gradient(made: Made, architecture: Architecture, loss: Loss) -> None:
    batch, before = neural_model.batch(1), begin(architecture, 7)
    if loss.of:  # its rows are positives alone
        batch = replace(batch, labels=np.ones_like(batch.labels))
    step = made(architecture, before, loss, optimizer="sgd", learning_rate=1.0)
    assert float(step(batch)) == pytest.approx(_loss(architecture, before, batch), rel=1e-5)
    after, chance = step.weights(), np.random.default_rng(1)
    for path, old in before.items():
        moved = old - after[path]
        for _ in range(4):
            place = np.unravel_index(int(chance.integers(old.size)), old.shape)
            if path.startswith("table_"):
                place = (
                    int(batch.columns[path[len("table_") :].split("/")[0]].ravel()[chance.integers(32 if "tags" not in path else 1)]),
                    0,
                )
            losses = []
            for nudge in (1e-6, -1e-6):
                changed = {name: one.astype(np.float64) for name, one in before.items()}
                changed[path][place] += nudge
                losses.append(_loss(architecture, changed, batch))
            assert moved[place] == pytest.approx((losses[0] - losses[1]) / 2e-6, abs=2e-6)


@pytest.mark.requirement("L-04")
@pytest.mark.parametrize("optimizer", ["adam", "adagrad", "sgd"])
def test_rows_that_a_batch_does_not_read_stay_as_they_are_and_so_does_what_is_remembered_of_them(made: Made, optimizer: str) -> None:
    step = made(optimizer=optimizer)
    before = step.state()
    step(neural_model.batch(1, users=10))
    after = step.state()
    tables = [name for name in before if name.endswith("table_user/embeddings")]
    assert len(tables) == {"adam": 4, "adagrad": 2, "sgd": 1}[optimizer]
    for name in tables:
        changed = (before[name] != after[name]).any(axis=1)
        assert changed[:10].any() and not changed[10:].any()


def test_an_adam_that_reads_all_rows_at_every_step_is_kerass_own(made: Made) -> None:
    import keras

    every = replace(
        neural_model.batch(1), columns={**neural_model.batch(1).columns, "user": np.arange(64, dtype=np.int32) % neural_model.USERS}
    )
    step = made(neural_model.mlp(), learning_rate=0.02)
    before, slots = step.weights(), keras.optimizers.Adam(0.02)
    table = keras.Variable(before["table_user/embeddings"])
    slots.build([table])
    for _ in range(5):
        last = step.weights()
        step(every)
        probe = made(neural_model.mlp(), weights=last, optimizer="sgd", learning_rate=1.0)
        probe(every)
        slots.apply([last["table_user/embeddings"] - probe.weights()["table_user/embeddings"]], [table])
        np.testing.assert_allclose(step.weights()["table_user/embeddings"], np.array(table.value), atol=2e-4)


@pytest.mark.parametrize("optimizer", ["adam", "adagrad", "sgd"])
def test_it_learns(made: Made, optimizer: str, subtests: pytest.Subtests) -> None:
    for architecture in ARCHITECTURES:
        with subtests.test(architecture=architecture.family):
            step = made(architecture, optimizer=optimizer, learning_rate={"adam": 0.05, "adagrad": 0.3, "sgd": 3.0}[optimizer])
            losses = [float(step(neural_model.batch(0))) for _ in range(60)]
            assert losses[-1] < 0.9 * losses[0]


def _learned(step: NeuralStep, seeds: range = range(8)) -> tuple[list[float], Weights]:
    return [float(step(neural_model.batch(seed))) for seed in seeds], step.weights()


@pytest.mark.requirement("G-23")
def test_fused_tables_train_as_tables_apart(made: Made) -> None:
    losses, weights = _learned(made())
    others, apart = _learned(made(fused=False))
    np.testing.assert_allclose(losses, others, rtol=1e-5)
    for path, one in weights.items():
        np.testing.assert_allclose(one, apart[path], atol=1e-5)


def test_equal_seeds_train_equal_models_dropout_included(made: Made) -> None:
    losses, weights = _learned(made(neural_model.everything(0.3)))
    again, same = _learned(made(neural_model.everything(0.3)))
    assert losses == again and all((one == same[path]).all() for path, one in weights.items())
    assert losses != _learned(made(neural_model.everything(0.3), seed=2))[0]


@pytest.mark.parametrize("optimizer", ["adam", "adagrad", "sgd"])
def test_what_is_kept_goes_on_as_if_nothing_had_been(made: Made, optimizer: str) -> None:
    step = made(neural_model.everything(0.3), optimizer=optimizer)
    _learned(step)
    state = step.state()
    losses, weights = _learned(step, range(8, 12))
    other = made(neural_model.everything(0.3), weights=begin(neural_model.everything(), 99), optimizer=optimizer)
    other.restore(state)
    again, same = _learned(other, range(8, 12))
    assert losses == again and all((one == same[path]).all() for path, one in weights.items())


def test_the_arrays_score_as_the_framework_does_and_as_it_is_by_now(made: Made) -> None:
    step, looked = made(neural_model.everything(0.3)), neural_model.batch(50)
    first = step.score(looked.columns)
    _learned(step)
    second = step.score(looked.columns)
    assert np.abs(first - second).max() > 1e-3
    np.testing.assert_allclose(second, sigmoid(step.own_logits(looked.columns)), atol=1e-6)
    np.testing.assert_array_equal(second, score(step.architecture, step.weights(), looked.columns))


@pytest.mark.parametrize("how", [{}, {"jit": True}, {"half": True}])
def test_two_towers_learn_who_goes_with_what(made: Made, how: dict[str, bool]) -> None:
    step = made(neural_model.towers(), loss=neural_model.in_batch(), learning_rate=0.05, **how)
    losses = [float(step(neural_model.batch(0))) for _ in range(60)]
    assert losses[-1] < 0.7 * losses[0]


@pytest.mark.requirement("L-02")
@pytest.mark.parametrize("how", [{"half": True}, {"jit": True}, {"half": True, "jit": True}], ids="-".join)
def test_half_precision_and_a_compiler_change_the_losses_by_rounding_alone(
    made: Made, how: dict[str, bool], subtests: pytest.Subtests
) -> None:
    for architecture in ARCHITECTURES:
        with subtests.test(architecture=architecture.family):
            losses, others = _learned(made(architecture))[0], _learned(made(architecture, **how))[0]
            np.testing.assert_allclose(losses, others, rtol=0.03 if "half" in how else 3e-3)
            assert losses[0] == pytest.approx(others[0], rel=0.01 if "half" in how else 1e-6)
            assert ("half" in how) == (losses[0] != pytest.approx(others[0], rel=1e-6))


HALF = {"half": True, "float16": True}


@pytest.mark.requirement("G-26", "N-06")
def test_the_scale_doubles_after_sound_steps_and_is_kept_with_the_model(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scaling, "EVERY", 3)
    step, scales = made(**HALF), []
    for seed in range(7):
        step(neural_model.batch(seed))
        scales.append(step.scale.value)
    assert scales == [2.0**one for one in (15, 15, 16, 16, 16, 17, 17)]
    other = made(**HALF)
    other.restore(step.state())
    for seed in (8, 9):
        assert float(other(neural_model.batch(seed))) == float(step(neural_model.batch(seed)))
    assert other.scale.value == step.scale.value == 2.0**18


@pytest.mark.requirement("G-26", "N-06")
def test_an_overflow_that_was_planted_is_skipped_until_the_scale_bears_it_and_training_goes_on(made: Made) -> None:
    step = made(neural_model.everything(), learning_rate=0.05, **HALF)
    step.scale.variables[0].assign(2.0**24)
    weights = step.weights()
    weights["deep/kernel"] *= 2.0**9
    step.restore(step.state() | {f"weights/{path}": one for path, one in weights.items()})
    losses = [float(step(neural_model.batch(0))) for _ in range(60)]
    assert 0 < step.scale.skipped < 20 and step.scale.value == 2.0 ** (24 - step.scale.skipped)
    assert np.isfinite(losses).all() and losses[-1] < 0.5 * losses[0]
    assert losses[: step.scale.skipped] == [losses[0]] * step.scale.skipped


@pytest.mark.requirement("G-26", "N-06")
def test_a_fixed_scale_stays_and_what_overflows_by_it_is_counted(made: Made) -> None:
    step = made(scale=2.0**100, **HALF)
    before = step.weights()
    for seed in range(3):
        step(neural_model.batch(seed))
    assert (step.scale.value, step.scale.skipped) == (2.0**100, 3)
    assert all((one == before[path]).all() for path, one in step.weights().items())


@pytest.mark.requirement("G-26", "N-06")
@pytest.mark.parametrize(("scale", "moves"), [(1.0, False), (2.0**15, True)])
def test_without_a_scale_small_gradients_vanish(made: Made, scale: float, moves: bool) -> None:
    weights = {path: one * np.float32(0.02) for path, one in begin(neural_model.mlp(), 7).items()}
    step = made(neural_model.mlp(), weights, optimizer="sgd", learning_rate=1e6, scale=scale, **HALF)
    step(neural_model.batch(0))
    assert (step.weights()["table_user/embeddings"] != weights["table_user/embeddings"]).any() == moves


def test_a_penalty_keeps_vectors_small(made: Made) -> None:
    sizes = []
    for penalty in (0.0, 0.1):
        step = made(penalty=penalty)
        for number in range(40):
            step(neural_model.batch(number % 4))
        sizes.append(float(np.square(step.weights()["table_user/embeddings"]).sum()))
    assert sizes[1] < 0.5 * sizes[0]


def test_a_process_has_one_framework(framework: Framework) -> None:
    with pytest.raises(Conflict, match="Keras runs on tensorflow in this process and cannot change to torch: start another process"):
        load_framework("torch")
