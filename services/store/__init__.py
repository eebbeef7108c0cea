"""State in SQL: recommenders, reconciled rows, versions and routes, by SQLAlchemy Core; SQLite now."""
