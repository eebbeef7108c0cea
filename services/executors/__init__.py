"""Executors of stages: local processes, and Kubernetes Jobs."""
