"""What every page is checked for: one well-formed file that loads nothing."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser

VOID = {"meta", "link", "input", "br", "col", "hr", "img"}


class Page(HTMLParser):
    """Ids, links, loaded addresses and texts of a page; fails on tags that do not match."""

    def __init__(self, text):
        super().__init__()
        self.open, self.ids, self.links, self.loads, self.data = [], [], [], [], {}
        self.words = ""
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        if tag not in VOID:
            self.open.append((tag, found.get("id")))
        self.ids += [found["id"]] if "id" in found else []
        self.links += [found["href"]] if tag == "a" else []
        self.loads += [v for k, v in attrs if k == "src" or (k == "href" and tag != "a")]

    def handle_endtag(self, tag):
        assert self.open.pop()[0] == tag

    def handle_data(self, data):
        tag, name = self.open[-1] if self.open else ("", None)
        if tag == "script" and name:
            self.data[name] = json.loads(data)
        elif tag not in ("script", "style"):
            self.words += data


def squeezed(words):
    return " ".join(words.split())


def check_whole(text):
    """A page is well-formed, links lead somewhere inside it, and nothing is loaded."""
    page = Page(text)
    assert len(page.ids) == len(set(page.ids))
    assert {link.removeprefix("#") for link in page.links} <= set(page.ids)
    assert page.loads == ["data:,"]
    assert set(re.findall(r"https?://[^\s\"'<>]*", text)) <= {"http://www.w3.org/2000/svg"}
    return page
