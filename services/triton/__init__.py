"""The model server: NVIDIA Triton, embedded or remote."""
