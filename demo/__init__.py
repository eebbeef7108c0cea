"""The story of `make demo`: it speaks HTTP to the platform as any user would."""
