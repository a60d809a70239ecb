"""Films of answers as files."""

import json
import re

import pytest
from PIL import Image

from flexmdm.canvas import Prompt
from flexmdm.generation.trace import Event
from flexmdm.reports.playback import write_film
from flexmdm.tasks.pipeline import Answer

EVENTS = (
    Event(0, 0.2, "insert", 1, entry=1),
    Event(1, 0.5, "insert", 2, entry=2),
    Event(2, 0.8, "reveal", 1, entry=1, token=1),
    Event(3, 1.0, "reveal", 2, entry=2, token=2),
)


class Letters:
    def show(self, tokens):
        return "".join("abc</script><b>"[token] if token != 2 else "</script>" for token in tokens)


@pytest.fixture
def answer():
    prompt = Prompt((0,), (False, True))
    return Answer("ab</script>", ("b</script>",), (0, 1, 2), 4, False, prompt, EVENTS)


def test_a_page_has_every_frame_and_nothing_a_model_writes_becomes_code(answer, tmp_path):
    write_film(Letters(), [answer, answer], tmp_path / "film.html")
    page = (tmp_path / "film.html").read_text()
    films = json.loads(re.search(r'type="application/json">(.*?)</script>', page, re.DOTALL)[1])
    texts = [[text for text, _ in frame["entries"]] for frame in films[0]["frames"]]
    assert texts == [["a"], ["a", None], ["a", None, None], ["a", "b", None], ["a", "b", "</script>"]]
    assert page.count("<script") == page.count("</script>") == 2 and "http" not in page.replace("http-equiv", "")


def test_a_gif_has_a_picture_for_every_step(answer, tmp_path):
    write_film(Letters(), [answer], tmp_path / "film.gif")
    with Image.open(tmp_path / "film.gif") as film:
        assert film.n_frames == 5 and film.size[0] == 900


def test_other_files_are_refused(answer, tmp_path):
    with pytest.raises(ValueError, match=r"\.html or \.gif"):
        write_film(Letters(), [answer], tmp_path / "film.mp4")
