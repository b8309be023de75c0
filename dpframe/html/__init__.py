"""The report as one self-contained HTML page: no scripts, no external resources, the same text every time."""

from dpframe.html.page import page

__all__ = ["page"]
