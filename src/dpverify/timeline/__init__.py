"""Privacy over time: how much each prefix of an output reveals (docs/method.md, section 5.12)."""
