"""The claims of a project over its releases: checks, their history, the ledger of the evidence, a plugin of pytest."""
