"""Alembic's entry: runs the steps on the connection that migrate.py hands over, in its transaction."""

from __future__ import annotations

from alembic import context

context.configure(connection=context.config.attributes["connection"], transactional_ddl=True)
context.run_migrations()
