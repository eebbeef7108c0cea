"""What runs for ever: control plane, gateway, monitor and the adapters that they use through ports."""
