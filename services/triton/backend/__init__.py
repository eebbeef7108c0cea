"""Code that runs in Triton's Python processes; the platform imports none of it."""
