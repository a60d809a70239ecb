"""What the documents say exists, exists; what they print, runs."""

import importlib
import importlib.util
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAPER = (ROOT / "docs" / "paper.md").read_text()
README = (ROOT / "README.md").read_text()
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
PYTHON = [(page, code) for page in PAGES for code in re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)]
LINKS = [(page, link) for page in PAGES for link in re.findall(r"\]\((?!http)([^)#]+)\)", page.read_text())]


def _named_tests():
    file = None
    for cell in re.findall(r"`([^`]*)`", PAPER):
        match = re.fullmatch(r"((?:\w+/)*test_\w+)?(?:::(test_\w+))?", cell)
        if match and (match[1] or match[2]):
            file = match[1] or file
            yield file, match[2]


@pytest.mark.parametrize(("file", "test"), sorted(set(_named_tests()), key=str))
def test_every_test_named_in_the_paper_map_exists(file, test):
    source = (ROOT / "tests" / f"{file}.py").read_text()
    assert test is None or f"def {test}(" in source


def test_every_function_named_in_the_paper_map_exists():
    names = re.findall(r"`([a-z_]+)\.([A-Za-z_]+)(?:\.\w+)?`", PAPER)
    assert len(names) > 10
    for module, name in names:
        homes = [f"flexmdm.{room}{module}" for room in ("", "generation.", "backbones.", "training.")]
        found = [home for home in homes if importlib.util.find_spec(home) and _has(home, name)]
        assert found, f"{module}.{name}"


def test_every_setting_of_the_retrofit_is_in_its_configuration():
    settings = re.findall(r"`(\w+ = [^`]+)`", PAPER.partition("### The retrofit of LLaDA-8B")[2].partition("\n#")[0])
    lines = [line.partition("#")[0].strip() for line in (ROOT / "configs" / "llada8b.toml").read_text().splitlines()]
    assert len(settings) > 10 and set(settings) <= set(lines)


def _has(module, name):
    return hasattr(importlib.import_module(module), name) or importlib.util.find_spec(f"{module}.{name}")


@pytest.mark.parametrize(("page", "code"), PYTHON, ids=[f"{page.stem}-{i}" for i, (page, _) in enumerate(PYTHON)])
def test_the_python_of_a_page_runs(page, code, capsys):
    exec(compile(code, page.name, "exec"), {})
    assert capsys.readouterr().out


@pytest.mark.parametrize(("page", "link"), LINKS, ids=[f"{page.stem}-{link}" for page, link in LINKS])
def test_links_lead_somewhere(page, link):
    assert (page.parent / link).exists()


def test_the_readme_is_one_screen_and_a_half():
    assert len(README.splitlines()) <= 150
