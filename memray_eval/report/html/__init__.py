"""A run as one HTML file that needs nothing else: no network, no server."""

from memray_eval.report.html.page import Run, render_html, write_html

__all__ = ["Run", "render_html", "write_html"]
