"""`eyas`: the command line. It speaks HTTP to a running platform; `up` starts a platform, `doctor` checks this machine."""
