"""What a search chooses among, and what it chooses: settings that the model takes, from the seed and the trials before."""

from __future__ import annotations

import math
from typing import Any

import pytest

from pipelines.trials import sampler
from pipelines.trials.space import Space, space_of
from shared.contracts.families import FAMILIES
from shared.contracts.ranges import NumberRange, between, one_of
from shared.contracts.tuning import TriedRow
from shared.domain.errors import Invalid

MF = {"family": "mf"}
WIDE: dict[str, NumberRange] = {"params.width": between(4, 64, log=True), "params.regularisation": between(1e-3, 1.0, log=True)}


def walked(space: Space, seed: int, count: int, value: Any = None) -> list[TriedRow]:
    """Trials whose value is `value` of what was chosen."""
    rows: list[TriedRow] = []
    for number in range(count):
        chosen = sampler.choose(space, seed, number, rows)
        found = value(chosen) if value else float(number % 3)
        state = {"state": "done", "value": found} if found is not None else {"state": "failed", "reason": "no"}
        rows.append(TriedRow(number=number, params=chosen, **state))
    return rows


def test_each_family_takes_all_of_its_own_ranges(subtests: pytest.Subtests) -> None:
    for family in (name for name, kind in FAMILIES.items() if kind.ranges):
        with subtests.test(family=family):
            space = space_of({"family": family}, {})
            assert set(space.ranges) == set(FAMILIES[family].ranges)
            for row in walked(space, 1, 30)[1:]:
                assert row.params
                space.model(row.params)


def test_every_family_that_has_settings_has_ranges_of_its_own() -> None:
    assert [name for name, kind in FAMILIES.items() if kind.model_fields and not kind.ranges] == []


def test_numbers_are_within_their_range_and_whole_where_they_must_be() -> None:
    space = space_of(MF, WIDE | {"params.sweeps": between(2, 5), "params.unobserved": between(1, 3)})
    assert space.integers == {"params.width", "params.sweeps"}
    for row in walked(space, 2, 40)[1:]:
        assert isinstance(row.params["params.width"], int) and 4 <= row.params["params.width"] <= 64
        assert row.params["params.sweeps"] in (2, 3, 4, 5)
        assert isinstance(row.params["params.unobserved"], float) and 1 <= row.params["params.unobserved"] <= 3
        assert 1e-3 <= row.params["params.regularisation"] <= 1


def test_the_first_trial_takes_settings_as_they_are() -> None:
    space = space_of({"family": "mf", "params": {"width": 16}}, WIDE)
    assert walked(space, 1, 1)[0].params == {}
    assert space.before == {"params.width": 16, "params.regularisation": None}
    assert not space.before_is_within, "the regularisation is chosen by the family itself"
    assert space_of({"family": "mf", "params": {"width": 16}}, {"params.width": between(4, 64)}).before_is_within


def test_a_choice_follows_from_the_seed_and_the_trials_before_it() -> None:
    space = space_of(MF, WIDE)
    whole = walked(space, 5, 25)
    for at in (3, 11, 24):
        assert sampler.choose(space, 5, at, whole[:at]) == whole[at].params
    assert [row.params for row in walked(space, 6, 5)] != [row.params for row in whole[:5]]
    turned = dict(reversed(WIDE.items()))
    assert [row.params for row in walked(space_of(MF, turned), 5, 12)] == [row.params for row in whole[:12]]


def test_the_search_finds_what_is_good_and_keeps_away_from_what_fails() -> None:
    """The best width is 16; above 40 there is no memory."""

    def value(chosen: dict[str, Any]) -> float | None:
        width = chosen.get("params.width", 64)
        return None if width > 40 else -abs(math.log(width / 16))

    rows = walked(space_of(MF, {"params.width": between(2, 512, log=True)}), 1, 40, value)
    late = rows[20:]
    assert max(row.value for row in rows if row.value is not None) > -0.1
    failures = [sum(row.state == "failed" for row in part) for part in (rows[:20], late)]
    assert failures[1] < failures[0]


def test_what_has_no_effect_beside_a_choice_is_not_chosen() -> None:
    """`verified` says something of negatives: without any it is refused."""
    ranges = {"params.negatives": one_of(0, 4), "params.verified": one_of(False, True)}
    rows = walked(space_of({"family": "mlp"}, ranges), 1, 30)[1:]
    assert {row.params["params.negatives"] for row in rows} == {0, 4}
    for row in rows:
        assert ("params.verified" in row.params) == (row.params["params.negatives"] == 4)


REFUSED: list[tuple[dict[str, Any], dict[str, NumberRange], str]] = [
    ({"family": "popularity"}, {}, "nothing to search: the family 'popularity' has no default ranges"),
    (MF, {"params.widht": between(1, 2)}, "unknown setting of mf 'params.widht': did you mean 'params.width'?"),
    (MF, {"params.width": between(0, 64)}, "--search width: model: params.width: expected at least 1, got 0"),
    (MF, {"params.width": between(1.5, 64)}, "--search width: model: params.width: expected a whole number, got 1.5"),
    (MF, {"params.width": between(16, 4096)}, "--search width: model: params.width: expected at most 1024, got 4096"),
    (MF, {"params.width": one_of(16, "wide")}, "--search width: model: params.width: expected a whole number, got 'wide'"),
    ({"family": "mlp"}, {"train.optimizer": one_of("adam", "adma")}, "--search train.optimizer: model: train.optimizer: expected"),
    ({"family": "mlp", "params": {"negatives": 0}}, {"params.verified": one_of(True, False)}, "'verified' has no effect"),
]


def test_what_the_model_does_not_take_is_refused_before_any_trial(subtests: pytest.Subtests) -> None:
    for model, ranges, said in REFUSED:
        with subtests.test(msg=said):
            with pytest.raises(Invalid) as refused:
                space_of(model, ranges)
            assert said in str(refused.value)
            assert "\n" not in str(refused.value)
