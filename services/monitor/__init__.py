"""What recommendations earn and how the world moves: hit rates, drift, and the signals that triggers read."""
