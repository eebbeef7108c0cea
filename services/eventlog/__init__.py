"""Event log in SQL: impressions, interactions, and their attribution, hits and hit rates."""
