"""What the performance claims rest on: each prints a table and writes var/bench/NAME.json."""
