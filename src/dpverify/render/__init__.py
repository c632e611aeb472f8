"""Pages and figures for people: one self-contained HTML file a report. Needs the extra `dpverify[report]`."""
