"""Everything that calls `verify` more than once: many pairs, searches, calibration, trade-offs and study files."""
