"""What crosses a process, as versioned pydantic models."""
