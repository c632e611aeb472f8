"""The report of a verification: its statements, its text and its JSON file."""
