"""What a served unit is, and how it is told to Triton. Pure."""
