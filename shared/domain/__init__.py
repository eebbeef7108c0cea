"""Pure decisions on frozen dataclasses: no I/O, no clock, no randomness, no framework."""
