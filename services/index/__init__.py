"""Adapters of the port CandidateIndex: search for the items with the highest dot product with a query."""
