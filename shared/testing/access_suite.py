"""Conformance suites of TokenStore, AuditLog and StoredResponses."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from shared.domain.access import Role, Token, digest, token_text
from shared.domain.errors import Conflict, NotFound
from shared.ports import Audited, AuditLog, StoredResponse, StoredResponses, TokenStore
from shared.testing.threads import THREADS, at_once

NOW = datetime(2026, 3, 1, 12, 0, 0, 123457, tzinfo=UTC)
HOUR = timedelta(hours=1)


def token(number: int = 1, **changes: object) -> Token:
    id = f"t{number:04d}"
    text = token_text(id, bytes([number] * 32))
    made = Token(id, f"shop-{number}", digest(text), Role.CLIENT, frozenset({"films", "books"}), NOW, "ada", NOW + HOUR)
    return replace(made, **changes)  # type: ignore[arg-type]


def entry(number: int = 0, **changes: object) -> Audited:
    made = Audited(NOW + number * HOUR, "ada", "t0001", "POST /v1/runs/{id}:cancel", f"/v1/runs/r{number}:cancel", "films")
    return replace(made, **changes)  # type: ignore[arg-type]


class AuditLogSuite:
    @pytest.mark.requirement("C-01")
    def test_an_entry_is_there_before_its_outcome_is(self, audit: AuditLog) -> None:
        seq = audit.begin(entry(recommender=None))
        assert audit.list() == [entry(recommender=None, seq=seq)]
        audit.end(seq, 202, "films", "too slow: über 5 %")
        assert audit.list() == [entry(seq=seq, status=202, detail="too slow: über 5 %")]

    def test_an_outcome_is_written_once(self, audit: AuditLog) -> None:
        seq = audit.begin(entry())
        audit.end(seq, 202, "films", "first")
        audit.end(seq, 500, None, "second")
        assert [(row.status, row.detail) for row in audit.list()] == [(202, "first")]

    def test_entries_are_found_by_what_they_say(self, audit: AuditLog) -> None:
        seqs = [
            audit.begin(entry(0)),
            audit.begin(entry(1, actor="bob")),
            audit.begin(entry(2, recommender="books")),
            audit.begin(entry(3, recommender=None, action="POST /v1/tokens")),
        ]

        def listed(**wanted: Any) -> list[int]:
            return [seqs.index(row.seq) for row in audit.list(**wanted)]

        assert listed() == [3, 2, 1, 0]
        assert listed(actor="bob") == [1]
        assert listed(recommenders=frozenset({"films"})) == [1, 0]
        assert listed(recommenders=frozenset({"films", "books"})) == [2, 1, 0]
        assert listed(recommenders=frozenset()) == []
        assert listed(action="POST /v1/tokens") == [3]
        assert listed(since=NOW + HOUR, until=NOW + 3 * HOUR) == [2, 1]
        assert listed(limit=2) == [3, 2]
        assert listed(limit=2, before=seqs[2]) == [1, 0]

    def test_entries_made_at_once_have_numbers_of_their_own(self, audit: AuditLog) -> None:
        assert len(set(at_once(THREADS, lambda number: audit.begin(entry(number))))) == THREADS
        assert len(audit.list()) == THREADS


class TokenStoreSuite:
    @pytest.mark.requirement("C-01")
    def test_a_token_is_read_back_as_it_was(self, tokens: TokenStore) -> None:
        for made in (token(1), token(2, recommenders=None, expires_at=None, role=Role.ADMIN), token(3, recommenders=frozenset())):
            tokens.add(made)
            assert tokens.get(made.id) == made

    def test_an_unknown_token_is_not_found(self, tokens: TokenStore) -> None:
        with pytest.raises(NotFound, match="no token is called 't9'"):
            tokens.get("t9")
        with pytest.raises(NotFound, match="no token is called 't9'"):
            tokens.revoke("t9", NOW, "ada")

    @pytest.mark.requirement("C-01")
    def test_a_revoked_token_stays_as_it_was_revoked_first(self, tokens: TokenStore) -> None:
        tokens.add(token())
        first = tokens.revoke("t0001", NOW, "ada")
        assert (first.revoked_at, first.revoked_by) == (NOW, "ada")
        assert tokens.revoke("t0001", NOW + HOUR, "bob") == first == tokens.get("t0001")

    def test_a_name_is_free_again_once_its_token_is_revoked(self, tokens: TokenStore) -> None:
        tokens.add(token(1))
        with pytest.raises(Conflict, match="shop-1"):
            tokens.add(token(2, name="shop-1"))
        tokens.revoke("t0001", NOW, "ada")
        tokens.add(token(2, name="shop-1"))
        with pytest.raises(Conflict, match="shop-1"):
            tokens.add(token(3, name="shop-1"))

    def test_an_id_is_used_once(self, tokens: TokenStore) -> None:
        tokens.add(token(1))
        with pytest.raises(Conflict):
            tokens.add(token(1, name="other"))
        assert tokens.get("t0001").name == "shop-1"

    def test_of_many_who_take_one_name_one_gets_it(self, tokens: TokenStore) -> None:
        def take(number: int) -> bool:
            try:
                tokens.add(token(number + 1, name="shop"))
            except Conflict:
                return False
            return True

        assert sum(at_once(THREADS, take)) == 1
        assert len(tokens.list()) == 1

    def test_the_newest_come_first_page_by_page(self, tokens: TokenStore) -> None:
        for number in (2, 1, 3):
            tokens.add(token(number))
        assert [row.id for row in tokens.list(limit=2)] == ["t0003", "t0002"]
        assert [row.id for row in tokens.list(limit=2, before="t0002")] == ["t0001"]


STALE, KEPT = timedelta(minutes=1), timedelta(hours=24)


class StoredResponsesSuite:
    def take(
        self, answers: StoredResponses, now: datetime, key: str = "k", by: str = "t1", request: str = "r"
    ) -> tuple[bool, StoredResponse]:
        return answers.take(by, key, request, now, STALE, KEPT)

    def test_the_first_does_it_and_the_next_gets_its_answer(self, answers: StoredResponses) -> None:
        assert self.take(answers, NOW) == (True, StoredResponse("r", NOW, NOW))
        assert self.take(answers, NOW + STALE / 2) == (False, StoredResponse("r", NOW, NOW))
        answers.keep("t1", "k", NOW, 202, {"content-type": "application/json"}, '{"id": "über"}')
        answer = StoredResponse("r", NOW, NOW, 202, {"content-type": "application/json"}, '{"id": "über"}')
        assert self.take(answers, NOW + 2 * STALE) == (False, answer)
        assert self.take(answers, NOW + STALE, request="other") == (False, answer)

    def test_a_key_is_its_tokens_own(self, answers: StoredResponses) -> None:
        assert [self.take(answers, NOW, by=token, key=key)[0] for token in ("t1", "t2") for key in ("a", "b")] == [True] * 4

    def test_what_was_never_answered_is_taken_over_and_its_first_holder_changes_nothing_more(self, answers: StoredResponses) -> None:
        self.take(answers, NOW)
        late = NOW + STALE
        assert self.take(answers, late) == (True, StoredResponse("r", NOW, late))
        answers.keep("t1", "k", NOW, 500, {}, "too late")
        answers.release("t1", "k", NOW)
        assert self.take(answers, late) == (False, StoredResponse("r", NOW, late))

    def test_what_is_released_is_done_by_the_next_as_the_same_request(self, answers: StoredResponses) -> None:
        self.take(answers, NOW)
        answers.release("t1", "k", NOW)
        assert self.take(answers, NOW + timedelta(seconds=1)) == (True, StoredResponse("r", NOW, NOW + timedelta(seconds=1)))

    def test_an_answer_is_forgotten_after_its_time(self, answers: StoredResponses) -> None:
        self.take(answers, NOW)
        answers.keep("t1", "k", NOW, 200, {}, "")
        assert self.take(answers, NOW + KEPT - timedelta(seconds=1))[0] is False
        assert self.take(answers, NOW + KEPT) == (True, StoredResponse("r", NOW + KEPT, NOW + KEPT))

    def test_of_many_at_once_one_does_it(self, answers: StoredResponses) -> None:
        assert [first for first, _ in at_once(THREADS, lambda _: self.take(answers, NOW))].count(True) == 1
