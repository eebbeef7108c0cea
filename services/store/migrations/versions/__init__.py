"""One file a step, in the order of its number."""
