"""The control plane's state in SQL: SQLAlchemy Core on SQLite or PostgreSQL."""
