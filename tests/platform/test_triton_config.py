"""What config.pbtxt can say is understood by the real server: batches, several instances, a first call."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
from tritonclient.grpc import InferenceServerClient, InferInput

from services.triton.embedded import EmbeddedTriton
from shared.serving.config import Batching, WarmUp, model_config
from shared.serving.signature import Signature
from shared.testing.model_server_suite import tiny_model

ROWS = 8
SIGNATURE = Signature.model_validate(
    {
        "user": "user",
        "item": "item",
        "inputs": [
            {"name": "user", "dtype": "int64", "side": "user"},
            {"name": "item", "dtype": "int64", "side": "item"},
            {"name": "tags", "dtype": "string", "width": 2, "side": "item"},
        ],
    }
)


@pytest.fixture(scope="module")
def triton(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedTriton]:
    triton = EmbeddedTriton(tmp_path_factory.mktemp("server"))
    triton.start()
    yield triton
    triton.stop()


def place(triton: EmbeddedTriton, text: str, name: str) -> InferenceServerClient:
    folder = triton.repository / name / "1"
    folder.mkdir(parents=True)
    (folder / "model.onnx").write_bytes(tiny_model(3, tags=True))
    (folder.parent / "config.pbtxt").write_text(text)
    client = InferenceServerClient(triton.address)
    client.load_model(name)
    return client


def ask(client: InferenceServerClient, name: str, user: int, *, batched: bool) -> np.ndarray:
    shape = (ROWS, 1) if batched else (ROWS,)
    feed = {
        "user": ("INT64", np.full(shape, user)),
        "item": ("INT64", np.arange(ROWS).reshape(shape)),
        "tags": ("BYTES", np.full((ROWS, 2), b"a", dtype=np.object_)),
    }
    inputs = []
    for key, (kind, values) in feed.items():
        inputs.append(InferInput(key, list(values.shape), kind))
        inputs[-1].set_data_from_numpy(values)
    found = client.infer(name, inputs).as_numpy("score")
    assert found is not None
    return np.asarray(found)


@pytest.mark.requirement("T-13")
@pytest.mark.parametrize("batched", [False, True])
def test_instances_batches_and_the_first_call_are_as_configured(triton: EmbeddedTriton, batched: bool) -> None:
    name = f"tuned-{batched}"
    config = replace(model_config(name, SIGNATURE, [1]), instances=2, warm_up=WarmUp(4, count=3))
    if batched:
        config = replace(config, batching=Batching(rows=64, preferred=(16, 32), delay_us=2000))
    client = place(triton, config.text(), name)
    found = client.get_model_config(name)
    assert found.config.max_batch_size == (64 if batched else 0)
    assert found.config.instance_group[0].count == 2
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda user: ask(client, name, user, batched=batched), range(40)))
    for user, answer in enumerate(answers):
        assert answer.ravel().tolist() == [float(user + 3 * item) for item in range(ROWS)]
    client.close()
