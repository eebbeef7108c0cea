"""Demo of `make demo`: an ordinary HTTP client of the platform."""
