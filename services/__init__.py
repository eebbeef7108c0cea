"""Long-running services: control plane, gateway, monitor, and the adapters that they use through ports."""
