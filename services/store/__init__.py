"""State in SQL: recommenders, reconciled rows, versions and routes, by SQLAlchemy Core; on SQLite or PostgreSQL."""
