"""Migrations of the tables; only services.store.migrate runs them."""
