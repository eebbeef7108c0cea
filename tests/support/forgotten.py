"""Ledger of forgotten users with a fixed secret."""

from __future__ import annotations

from sqlalchemy import Engine

from services.eventlog.forgetting import SqlForgottenUsers
from shared.domain.forgetting import UserDigest

DIGEST = UserDigest(b"test")


def forgotten_users(engine: Engine) -> SqlForgottenUsers:
    return SqlForgottenUsers(engine, DIGEST)
