"""The size of a step by rule: of the layers, of the lists, of the data; or the spec's word."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from pipelines.training.batch_size import batch_size
from pipelines.training.trainer import TrainingRequest, run
from shared.domain.errors import Invalid
from tests.support.training_tasks import Factors, task, write_rows

MANY = 10**9


LAYERS: list[tuple[tuple[int, ...], int]] = [
    ((400, 128, 128, 128, 1), 65_536),
    ((400, 512, 256, 1), 32_768),
    ((800, 1024, 512, 256, 1), 16_384),
    ((1000, 2048, 1024, 512, 256, 1), 8_192),
    ((8000, 8192, 8192, 8192, 1), 8_192),
    ((), 65_536),
]


@pytest.mark.requirement("G-25")
def test_wide_layers_take_small_steps_and_narrow_ones_large_steps(subtests: pytest.Subtests) -> None:
    for widths, size in LAYERS:
        with subtests.test(widths=widths):
            found = batch_size(None, widths, 4, MANY)
            assert found.size == size and "its layers" in found.why


@pytest.mark.requirement("G-25")
def test_long_lists_make_steps_smaller_divided_by_the_number_of_their_tables(subtests: pytest.Subtests) -> None:
    for lookups, size in [(64, 16_384), (2 * 64, 8_192), (4 * 64, 4_096), (1_000_000, 1_024), (26, 32_768)]:
        with subtests.test(lookups=lookups):
            found = batch_size(None, (64, 1), lookups, MANY)
            assert found.size == size and found.why == f"by rule of its tables ({lookups:.3g} values looked up per row)"


@pytest.mark.requirement("G-25")
def test_few_rows_make_steps_smaller_so_that_an_epoch_has_some(subtests: pytest.Subtests) -> None:
    for rows, size in [(5_000_000, 16_384), (500_000, 1_024), (300, 1_024), (20_000_000, 65_536)]:
        with subtests.test(rows=rows):
            assert batch_size(None, (64, 1), 2, rows).size == size


def test_before_the_rows_are_known_it_is_what_they_may_make_smaller() -> None:
    found = batch_size(None, (64, 1), 2, None)
    assert found.size == 65_536 and found.why.endswith("fewer for few rows, which training counts")


@pytest.mark.requirement("G-25")
def test_a_step_that_weighs_each_row_against_each_other_one_takes_few() -> None:
    chosen = batch_size(None, (64, 1), 2, MANY, in_batch=True)
    assert (chosen.size, chosen.why) == (4_096, "by rule of a step that compares each row with each other row")
    assert batch_size(None, (64, 1), 2, 500_000, in_batch=True).size == 1_024
    assert batch_size(16_384, (64, 1), 2, MANY, in_batch=True).size == 16_384
    with pytest.raises(Invalid, match="so 16,385 rows take 1 GB several times over: set at most 16,384"):
        batch_size(16_385, (64, 1), 2, MANY, in_batch=True)


def test_the_specs_word_counts() -> None:
    found = batch_size(77, (2048, 2048, 1), 1000, 10)
    assert (found.size, found.why) == (77, "set in the spec")


@pytest.mark.requirement("G-25")
def test_what_was_chosen_is_said_and_used(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    given = task(write_rows(tmp_path / "train.parquet"), batch_size=None, epochs=1)
    with caplog.at_level(logging.INFO):
        course = run(given, TrainingRequest(negatives=4), lambda _: Factors())
    rows = course.report.epochs[0].rows
    assert f"batch size: chosen rows=1024 reason=by rule of its {rows:,} rows per epoch, for 256 steps" in caplog.text
    assert course.facts["batch_size"]["rows"] == 1024 == course.metrics["train.batch_size"]
    assert course.step.steps == -(-rows // 1024)
