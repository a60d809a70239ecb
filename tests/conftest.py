"""One thread per test process, and what is true of any page.

The tensors are small, and the processes of a parallel run must not fight for cores.
"""

from html.parser import HTMLParser

import pytest
import torch

torch.set_num_threads(1)

VOID = {"meta", "link", "input", "br", "img"}
SECTIONS = ("growth", "success", "plans", "lengths", "loss", "facts")


class Reader(HTMLParser):
    """Checks that tags match, and keeps what a page refers to and says."""

    def __init__(self, text):
        super().__init__()
        self.open, self.ids, self.references, self.links, self.pictures, self.words = [], [], [], [], [], []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attributes):
        values = dict(attributes)
        if tag not in VOID:
            self.open.append(tag)
        if "id" in values:
            self.ids.append(values["id"])
        for name in ("src", "href", "xlink:href", "data", "poster", "srcset", "action"):
            if name in values:
                (self.links if tag == "a" else self.references).append(values[name])
        if tag == "svg":
            self.pictures.append(values)

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)
        if tag not in VOID:
            self.handle_endtag(tag)

    def handle_endtag(self, tag):
        assert self.open and self.open.pop() == tag, f"</{tag}> closes nothing"

    def handle_data(self, data):
        self.words.append(data)


def _check(text):
    """Well-formed, self-contained, with all its sections and a text for every picture."""
    page = Reader(text)
    assert page.open == []
    assert len(page.ids) == len(set(page.ids)) and set(SECTIONS) <= set(page.ids)
    inside = {f"#{name}" for name in page.ids}
    assert all(reference in inside or reference.startswith("data:") for reference in page.references), page.references
    assert all(link.startswith("https://arxiv.org/") for link in page.links)
    assert "@import" not in text and "url(" not in text.replace("url(#", "") and "<img" not in text
    assert all(picture.get("aria-label") or picture.get("aria-hidden") == "true" for picture in page.pictures)
    return page


@pytest.fixture(scope="session")
def check_page():
    return _check
