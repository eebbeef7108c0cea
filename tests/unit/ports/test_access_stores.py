"""Tokens, the audit log and stored answers keep the promises of their ports."""

from __future__ import annotations

import pytest
from sqlalchemy import Engine

from services.store.audit import SqlAudit
from services.store.idempotency import SqlIdempotency
from services.store.tokens import SqlTokens
from shared.testing.access_suite import AuditLogSuite, StoredResponsesSuite, TokenStoreSuite


class TestSqlTokens(TokenStoreSuite):
    @pytest.fixture
    def tokens(self, engine: Engine) -> SqlTokens:
        return SqlTokens(engine)


class TestSqlAudit(AuditLogSuite):
    @pytest.fixture
    def audit(self, engine: Engine) -> SqlAudit:
        return SqlAudit(engine)


class TestSqlAnswers(StoredResponsesSuite):
    @pytest.fixture
    def answers(self, engine: Engine) -> SqlIdempotency:
        return SqlIdempotency(engine)
