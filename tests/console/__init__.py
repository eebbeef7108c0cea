"""The console in a real browser. A package, so that its platform ends with it."""
