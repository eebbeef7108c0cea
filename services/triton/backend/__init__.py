"""What runs inside Triton's own Python processes; nothing here is imported by the platform."""
