"""Verification that stops as soon as its runs allow an answer (docs/method.md, section 5.8)."""
