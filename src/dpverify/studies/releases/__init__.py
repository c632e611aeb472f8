"""The claims of a project over its releases: checks of all claims, their history, and the ledger of the evidence."""
