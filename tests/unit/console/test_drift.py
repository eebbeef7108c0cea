"""Drift's page: what moved, how far, since when, and what follows; and an honest answer while nothing is known."""

from __future__ import annotations

from dataclasses import replace

import pytest

from shared.domain.drift.reading import ShareChange
from tests.support.drift_readings import look

pytestmark = pytest.mark.requirement("C-01")

EVIL = "<script>alert(1)</script>"


@pytest.fixture
def world(world):
    world.add_recommender()
    return world


def test_while_there_are_too_few_likes_it_says_how_many_are_missing(world, visitor):
    world.look = None
    text = visitor.get("/recommenders/m/drift").text
    assert "Too few positives yet" in text
    assert "312 of 2,000 positives since the version serves; 1,688 are missing" in text


def test_features_are_ranked_against_their_thresholds(world, visitor):
    found = look(small=0.05, large=0.31)
    world.look = found
    text = visitor.get("/recommenders/m/drift").text
    assert text.index(">large</th>") < text.index(">small</th>")
    assert "Possible drift: large beyond the threshold" in text
    assert "less than 0.01 %" in text


def test_shares_then_and_now_are_drawn_with_their_numbers(world, visitor):
    found = look(genres=0.31)
    shares = (ShareChange(EVIL, 0.5, 0.1), ShareChange("War", 0.1, 0.6))
    world.look = replace(found, readings=(replace(found.readings[0], shares=shares),))
    text = visitor.get("/recommenders/m/drift").text
    assert "Shares of 2 values of genres" in text
    assert "+50.0 points" in text and "60.0 %" in text
    assert EVIL not in text and "&lt;script&gt;" in text


def test_what_has_not_moved_is_called_steady(world, visitor):
    world.look = look(genres=0.0)
    assert "No drift since version 1 began to serve." in visitor.get("/recommenders/m/drift").text


def test_it_says_what_would_retrain_it(world, visitor):
    assert "No automatic retraining" in visitor.get("/recommenders/m/drift").text
    world.add_recommender(retrain={"on": [{"drift": {"psi": 0.2}}]})
    text = visitor.get("/recommenders/m/drift").text
    assert "Observation" in text and "No automatic retraining" not in text


def test_of_nobody_there_is_nothing(visitor):
    assert visitor.get("/recommenders/nobody/drift").status_code == 404
