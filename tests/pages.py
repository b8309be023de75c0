"""What a page of HTML holds, and that every element of it is closed."""

from __future__ import annotations

import re
from html.parser import HTMLParser

VOID = {"meta", "rect", "line", "circle"}


class Outline(HTMLParser):
    """Checks that every element is closed, and gathers what a page holds."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.seen: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []

    def handle_starttag(self, tag, attributes):
        self.seen.append((tag, dict(attributes)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        assert tag in VOID
        self.seen.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


def outline(text: str) -> Outline:
    page = Outline()
    page.feed(text)
    page.close()
    assert page.open == []
    return page


def visible(text: str) -> str:
    return re.sub(r"\s+", " ", " ".join(outline(text).text))
