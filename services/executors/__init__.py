"""Where stages run: this machine's processes."""
