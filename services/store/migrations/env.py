"""Alembic environment: runs the migrations on the connection of migrate.py, in its transaction."""

from __future__ import annotations

from alembic import context

context.configure(connection=context.config.attributes["connection"], transactional_ddl=True)
context.run_migrations()
