"""Conformance suite of DriftSamples; a test module provides `log` and `sightings` on one set of events."""

from __future__ import annotations

from datetime import timedelta

import pytest

from shared.domain.sequential_test import VariantSample
from shared.ports import AnswerScore, DriftSamples, EventLog, Like, NewestTimes
from shared.testing.event_suite import ATTRIBUTION, LATER, T0, did, like, minute, shown


class DriftSamplesSuite:
    def test_likes_are_the_first_or_the_newest_ones(self, log: EventLog, sightings: DriftSamples) -> None:
        like(log, *(did(10 + n, minute(n), user=n) for n in (3, 1, 0, 2)), did(99, minute(1), recommender="books"))
        log.interactions([did(98, minute(9))], [False], ATTRIBUTION)
        first = [Like(1, 11, minute(1)), Like(2, 12, minute(2))]
        assert list(sightings.likes("films", minute(1), 2, newest=False)) == first
        assert [sighting.item for sighting in sightings.likes("films", minute(1), 2, newest=True)] == [13, 12]
        assert len(sightings.likes("films", T0, 9, newest=True)) == 4
        assert sightings.likes("films", LATER, 9, newest=False) == []

    def test_the_newest_of_many_is_one_question(self, log: EventLog, sightings: DriftSamples) -> None:
        log.impressions([shown("a", minute(1)), shown("b", minute(3)), shown("c", minute(9), version=2)])
        log.impressions([shown("d", minute(4), recommender="books"), shown("e", minute(5), recommender="music")])
        like(log, did(at=minute(2), recommender="games"), did(at=minute(7), recommender="music"), did(at=minute(6), recommender="music"))
        log.interactions([did(98, minute(8))], [False], ATTRIBUTION)
        newest = sightings.newest({"films": 1, "books": 2, "games": 1, "music": 1, "pages": 1})
        assert newest == {
            "films": NewestTimes(minute(3), minute(8)),
            "games": NewestTimes(None, minute(2)),
            "music": NewestTimes(minute(5), minute(7)),
        }
        assert sightings.newest({}) == {}

    def test_scores_are_those_of_a_versions_own_answers(self, log: EventLog, sightings: DriftSamples) -> None:
        log.impressions(
            [
                shown("a", minute(1), score=0.5),
                shown("b", minute(2), score=0.25, user=2),
                shown("c", minute(3)),
                shown("d", minute(4), score=0.75, fallback="unknown user"),
                shown("e", minute(5), score=1.0, version=2),
                shown("f", minute(6), score=0.125, recommender="books"),
                shown("g", minute(7), score=-3.0, user=3),
            ]
        )
        assert list(sightings.scores("films", 1, T0, 2, newest=False)) == [AnswerScore(1, 0.5, minute(1)), AnswerScore(2, 0.25, minute(2))]
        assert [scored.score for scored in sightings.scores("films", 1, minute(2), 9, newest=True)] == [-3.0, 0.25]

    def test_blocks_count_each_user_once_in_each(self, log: EventLog, sightings: DriftSamples) -> None:
        log.impressions(
            [
                shown("before", minute(-1)),
                shown("a", minute(0)),
                shown("b", minute(9)),
                shown("c", minute(9), user=2),
                shown("d", minute(10)),
                shown("e", minute(10), user=2, fallback="unknown user"),
                shown("f", minute(35), user=2),
                shown("g", minute(11), version=2),
                shown("h", minute(40)),
            ]
        )
        late = did(at=minute(35) + ATTRIBUTION + timedelta(microseconds=1), user=2, request_id="f")
        like(log, did(at=minute(2), request_id="a"), did(at=minute(12), user=2, request_id="c"), did(at=minute(12), request_id="d"), late)
        blocks = sightings.blocks("films", 1, T0, minute(40), timedelta(minutes=10), ATTRIBUTION)
        assert blocks == {
            0: VariantSample(2, 1.5, 1.25, 3, 2, 2),
            1: VariantSample(1, 1.0, 1.0, 1, 1, 1),
            3: VariantSample(1, 0.0, 0.0, 1, 0, 0),
        }
        assert sightings.blocks("films", 3, T0, minute(40), timedelta(minutes=10), ATTRIBUTION) == {}

    @pytest.mark.requirement("G-13")
    def test_blocks_of_any_length_add_up_to_all_answers(self, log: EventLog, sightings: DriftSamples) -> None:
        log.impressions([shown(f"r{n}", minute(n * 7 % 100), user=n % 13) for n in range(100)])
        like(log, *(did(at=minute(n * 7 % 100), user=n % 13, request_id=f"r{n}") for n in range(0, 100, 3)))
        for length in (1, 7, 50, 1000):
            blocks = sightings.blocks("films", 1, T0, LATER, timedelta(minutes=length), ATTRIBUTION)
            assert sum(sample.answers for sample in blocks.values()) == 100
            assert sum(sample.hits for sample in blocks.values()) == 34
            assert max(blocks) == 99 // length
