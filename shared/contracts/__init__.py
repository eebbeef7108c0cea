"""Data that crosses process boundaries, as versioned pydantic models."""
