"""Figures and HTML pages. Needs the extra `dpverify[report]` (matplotlib and Jinja2).

This package draws plain data: it does not import `dpverify.report`. `dpverify.report.page` turns a report into the data
that `render.page.report_page` draws.
"""
