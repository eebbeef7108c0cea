"""The key of the hash of text ids: one per database, the same for every process."""

from __future__ import annotations

from sqlalchemy import Engine

from services.store.installation import id_hash
from shared.domain.entity_ids import KEY_BYTES
from shared.testing.threads import THREADS, at_once


def test_all_processes_of_an_installation_have_one_key(engine: Engine) -> None:
    secrets = {hash.secret for hash in at_once(THREADS, lambda _: id_hash(engine))}
    assert secrets == {id_hash(engine).secret}
    assert len(id_hash(engine).secret) == KEY_BYTES
