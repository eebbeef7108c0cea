"""`eyas`: the platform from a terminal. Speaks HTTP to a running platform; `up` starts one, `doctor` looks at this machine."""
