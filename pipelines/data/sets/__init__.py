"""Public data sets by name: in the layouts that their makers publish, and twins of their shape for machines that have none."""
