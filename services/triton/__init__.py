"""The model server: NVIDIA Triton, embedded in this machine or beside it."""
