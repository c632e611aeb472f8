"""Studies in TOML files: reading, running, resuming, and the check of their folders."""
