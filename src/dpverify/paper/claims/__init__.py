"""The four claims of the paper: what they say, the rule that answers them, and the answers."""
