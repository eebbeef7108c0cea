"""Served units and their Triton configuration. Pure."""
