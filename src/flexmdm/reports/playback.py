"""Films of answers as files: a page with a slider that needs nothing else, or a GIF."""

from __future__ import annotations

import colorsys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from flexmdm.reports.charts import GREY, INK, SOFT
from flexmdm.reports.film import Frame, frames_of
from flexmdm.reports.pages import render
from flexmdm.tasks.pipeline import Answer
from flexmdm.tasks.task import Task

_MASK = "▢"  # of a page; a GIF draws a box
_STEPS = 60  # frames of a GIF at most, and positions of a slider
_MILLISECONDS, _LAST = 120, 2500  # that a frame of a GIF stays, and its last one
_SIZE, _LINE, _MARGIN, _WIDTH = 22, 40, 24, 900  # pixels of a GIF
KINDS = (".html", ".gif")


def check_film(file: Path) -> None:
    """Raise if a file is called neither like a page nor like a GIF."""
    if file.suffix not in KINDS:
        raise ValueError(f"a film is a page or a GIF ({' or '.join(KINDS)}), and {file} is neither")


def write_film(task: Task, answers: Sequence[Answer], file: Path) -> None:
    """Write how answers, which must have traces, came about: as a page (.html) or as pictures (.gif)."""
    check_film(file)
    films = [_film(task, answer) for answer in answers]
    file.parent.mkdir(parents=True, exist_ok=True)
    if file.suffix == ".html":
        file.write_text(render("film.html", films=films, steps=_STEPS, mask=_MASK), encoding="utf-8")
    else:
        _write_gif(films, file)


def _film(task: Task, answer: Answer) -> dict[str, Any]:
    """Return the frames of an answer: the clock, and of each entry its text (none: a mask) and its colour."""
    frames = frames_of(answer.events, answer.prompt.tokens)
    given = {number for number, token in enumerate(answer.prompt.tokens) if token is not None}
    born: dict[int, float] = {}
    for number, frame in enumerate(frames):
        for entry in frame.entries:
            born.setdefault(entry.identity, number / max(len(frames) - 1, 1))

    def entries(frame: Frame) -> list[tuple[str | None, str]]:
        return [
            (
                None if entry.token is None else task.show([entry.token]),
                SOFT if entry.identity in given else _colour(born[entry.identity]),
            )
            for entry in frame.entries
        ]

    return {"text": answer.text, "frames": [{"alpha": round(f.alpha, 3), "entries": entries(f)} for f in frames]}


def _colour(time: float) -> str:
    """Return the colour of what was inserted at a time from 0 to 1: from blue by green to orange.

    >>> _colour(0.0), _colour(1.0)
    ('#1464b3', '#b35014')
    """
    red, green, blue = colorsys.hls_to_rgb((0.583 - 0.52 * time) % 1, 0.39, 0.8)
    return f"#{round(255 * red):02x}{round(255 * green):02x}{round(255 * blue):02x}"


def _write_gif(films: Sequence[dict[str, Any]], file: Path) -> None:
    from matplotlib.font_manager import FontProperties, findfont
    from PIL import Image, ImageDraw, ImageFont

    font = ImageFont.truetype(findfont(FontProperties(family="DejaVu Sans")), _SIZE)
    pictures = []
    steps = min(max(len(film["frames"]) for film in films) - 1, _STEPS)
    for step in range(steps + 1):
        lines: list[list[tuple[float, str | None, str]]] = []
        for film in films:
            frames = film["frames"]
            shown = frames[round(step / max(steps, 1) * (len(frames) - 1))]["entries"]
            lines += _wrapped(shown, font) or [[]]
        pictures.append(lines)
    height = 2 * _MARGIN + _LINE * max(map(len, pictures))
    images = []
    for lines in pictures:
        image = Image.new("RGB", (_WIDTH, height), "white")
        draw = ImageDraw.Draw(image)
        for row, line in enumerate(lines):
            for x, text, colour in line:
                top = _MARGIN + row * _LINE
                if text is None:
                    draw.rounded_rectangle((x + 2, top + 3, x + _SIZE - 4, top + _SIZE + 3), 4, GREY, INK)
                else:
                    draw.text((x, top), text, colour, font)
        images.append(image)
    times = [_MILLISECONDS] * (len(images) - 1) + [_LAST]
    images[0].save(file, save_all=True, append_images=images[1:], duration=times, loop=0, optimize=True)


def _wrapped(entries: Sequence[tuple[str | None, str]], font: Any) -> list[list[tuple[float, str | None, str]]]:
    """Return the entries of a frame in lines, each with where it begins."""
    lines: list[list[tuple[float, str | None, str]]] = []
    x = float(_WIDTH)
    for text, colour in entries:
        width = _SIZE if text is None else font.getlength(text)
        if not lines or x + width > _WIDTH - _MARGIN:
            lines.append([])
            x, text = float(_MARGIN), text if text is None else text.lstrip(" ")
        lines[-1].append((x, text, colour))
        x += _SIZE if text is None else font.getlength(text)
    return lines
