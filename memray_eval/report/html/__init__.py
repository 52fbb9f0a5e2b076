"""Renders a run as one self-contained HTML file, which needs no network and no server."""

from memray_eval.report.html.page import render_html, write_html

__all__ = ["render_html", "write_html"]
