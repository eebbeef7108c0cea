"""How-tos for operators: their commands run. What they tell to write: tests/unit/project/test_documents.py."""

from __future__ import annotations

from pathlib import Path

from tests.servers.postgres_server import GUARDED, PASSWORD, Server
from tests.support.document_runner import ROOT, Reader, blocks, copy
from tests.support.secret_files import write_secret


def test_the_platform_comes_up_on_postgresql_as_the_guide_says(postgres: Server, tmp_path: Path) -> None:
    name = "docs/how-to/stores.md"
    text = (ROOT / name).read_text()
    database = postgres.new_database(migrated=False).partition("@/")[2].partition("?")[0]
    postgres.execute(f"DO $$ BEGIN CREATE ROLE {GUARDED} LOGIN PASSWORD '{PASSWORD}'; EXCEPTION WHEN duplicate_object THEN NULL; END $$")
    postgres.execute(f"ALTER DATABASE {database} OWNER TO {GUARDED}")
    write_secret(tmp_path / "password", PASSWORD)
    given = f"EYAS_DATABASE_URL='{postgres.url(database, GUARDED)}' EYAS_DATABASE_PASSWORD_FILE={tmp_path / 'password'}"
    for said, here in (
        ("postgresql://eyas@db.example.com:5432/eyas", f"'{postgres.url(database, GUARDED)}'"),
        ("/etc/eyas/database-password", str(tmp_path / "password")),
        ("$ .venv/bin/eyas up\n", f"$ {given} .venv/bin/eyas up --port 0 --metrics-port 0\n"),  # in the guide from the lines above
    ):
        assert text.count(said) == 1
        text = text.replace(said, here)
    with Reader(copy(tmp_path / "eyas"), seconds=120) as reader:
        reader.follow(blocks(text, name))
    assert reader.ran == 4
    assert postgres.execute("SELECT count(*) > 10 FROM information_schema.tables WHERE table_schema = 'public'", database) == [(True,)]
