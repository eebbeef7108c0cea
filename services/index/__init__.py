"""Adapters of the port CandidateIndex: which items' vectors meet a query best."""
