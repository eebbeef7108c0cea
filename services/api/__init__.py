"""HTTP API of the control plane and the gateway."""
