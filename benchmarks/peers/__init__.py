"""What others do with the same work: each script runs in an environment of its own, made on first use under var/bench."""
