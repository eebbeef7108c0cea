"""Is a batch of interactions fit to learn from? Rows are judged one by one, the batch by its figures and against the last accepted one.

Bad rows are kept apart with their reasons, never dropped: what is read is what is kept and what is quarantined, together. Everything is
done in streaming passes, and what is remembered of a batch is bounded.
"""
