"""A page as a reader gets it, and a name that tries to break out of it."""

from __future__ import annotations

from html.parser import HTMLParser

GAP = "\N{NO-BREAK SPACE}"
NASTY = "</style><script>alert(1)</script>"


class Page(HTMLParser):
    """The visible text, the tags, and whether they close in order."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.feed(page)
        self.close()
        self.text = " ".join(" ".join(self.words).replace(GAP, " ").split())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in ("meta", "link"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.words.append(data)
