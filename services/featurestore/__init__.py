"""Feature store in SQL or Redis, and the history of its values."""
