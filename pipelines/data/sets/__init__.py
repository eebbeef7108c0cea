"""Public data sets by name, in their published layouts, and synthetic twins for machines without the data."""
