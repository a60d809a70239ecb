import json
import math
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from rich.console import Console

from flexmdm.evaluation.distances import Estimate
from flexmdm.evaluation.intervals import Interval
from flexmdm.reports.text import SHOWN, table_of, write_page
from flexmdm.sweeps.text import LikelihoodScore, TextScore

HOSTILE = "</li></ol><script>alert(1)</script><img src=http://evil.example/x onerror=alert(1)> & \ud800 [bold]"
NOTHING = Interval(math.nan, math.nan, math.nan)


def score(model="flexmdm", steps=64, **changes):
    values = {
        "model": model, "sampler": "spaced", "steps": steps, "temperature": 1.0, "num": 100,
        "length_w1": Interval(3.2, 1.0, 5.5), "length_ks": Interval(0.1, 0.0, 0.2),
        "generative_perplexity": Interval(80.0, 70.0, 95.0), "kept": 0.98, "entropy": Interval(4.0, 3.9, 4.1),
        "distinct_1": 0.1, "distinct_2": 0.5, "distinct_3": 0.9, "evaluations": 65.0, "seconds": 0.5,
        "samples": ["one text", "two texts"], "lengths": [5, 8, 9, 12],
    }  # fmt: skip
    return TextScore(**(values | changes))


LIKELIHOOD = LikelihoodScore("flexmdm", Estimate(700.0, 8.0), 7.0, Estimate(1.5, 0.01), 100)


class Elements(HTMLParser):
    """The elements of a page, their attributes, and its text."""

    def __init__(self, html):
        super().__init__()
        self.names, self.attributes, self.text = [], [], []
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.names.append(tag)
        self.attributes += attrs

    def handle_data(self, data):
        self.text.append(data)


def written(tmp_path, scores, likelihoods=(LIKELIHOOD,), title="A title", xz=2.5, command="flexmdm eval runs/a"):
    write_page(tmp_path / "deep" / "page.html", title, scores, likelihoods, [4, 8, 8, 11], xz, command)
    return (tmp_path / "deep" / "page.html").read_text(encoding="utf-8")


def test_hostile_samples_names_and_commands_stay_text(tmp_path):
    scores = [score(HOSTILE, samples=[HOSTILE], sampler=HOSTILE), score(HOSTILE, steps=0, samples=[HOSTILE])]
    likelihood = LikelihoodScore(HOSTILE, Estimate(700.0, 8.0), 7.0, Estimate(1.5, 0.01), 100)
    elements = Elements(written(tmp_path, scores, [likelihood], HOSTILE, command=HOSTILE))
    assert not {"script", "img", "iframe", "object"} & set(elements.names)
    assert not [name for name, _ in elements.attributes if name.startswith("on")]
    assert "<script>alert(1)</script>" in "".join(elements.text)


def test_the_page_needs_no_network(tmp_path):
    html = written(tmp_path, [score(), score("mdm", samples=["see http://example.com"])])
    elements = Elements(html)
    links = [value for name, value in elements.attributes if name in ("src", "href", "srcset", "action", "data")]
    assert links == ["data:,"]
    assert "url(" not in html and "@import" not in html and "default-src 'none'" in html


def test_the_page_shows_twenty_samples_of_each_score_and_everything_asked_for(tmp_path):
    many = [f"text number {number}." for number in range(30)]
    html = written(tmp_path, [score(samples=many, steps=steps) for steps in (16, 64)] + [score("mdm", samples=[""])])
    assert html.count("text number 0.") == 2 and html.count(f"text number {SHOWN - 1}.") == 2
    assert f"text number {SHOWN}." not in html and "(empty)" in html
    for part in ("A title", "flexmdm eval runs/a", "xz -9e", "prefers-color-scheme: dark", "1.500", "2.500"):
        assert part in html
    assert html.count('class="chart"') == 3


def test_what_was_not_sampled_or_not_measured_has_its_place(tmp_path):
    reference = score("held-out", steps=0, sampler="", length_w1=NOTHING, length_ks=NOTHING, evaluations=math.nan)
    failed = score("mdm", generative_perplexity=NOTHING, samples=[], lengths=[0, 0])
    html = written(tmp_path, [reference, failed, score()], likelihoods=[])
    assert "nan" not in html.lower().replace("finance", "")
    assert html.count("held-out: 80</text>") == 1  # the dashed line


def test_the_table_has_values_with_their_intervals():
    console = Console(width=140, record=True, file=open("/dev/null", "w"))
    console.print(table_of([score(), score("[red]mdm[/]", temperature=0.7, generative_perplexity=NOTHING)], "Texts"))
    text = console.export_text()
    for part in ("Texts", "80.0", "70.0-95.0", "3.20", "1.00-5.50", "98%", "2: 50%", "3: 90%", "64 steps", "T=0.7"):
        assert part in text
    assert "[red]mdm[/]" in text and "nan" not in text


@pytest.mark.parametrize("perplexity", [Interval(123.4, 110.5, 140.2), NOTHING], ids=["perplexity", "none"])
def test_the_table_fits_into_80_columns(perplexity):
    console = Console(width=80, record=True, file=open("/dev/null", "w"))
    rows = [score("flexmdm-2", steps=1024), score("held-out", steps=0, sampler="")]
    console.print(table_of([replace(row, generative_perplexity=perplexity, distinct_2=0.0123) for row in rows]))
    lines = [line.strip() for line in console.export_text().splitlines()]
    first = next(number for number, line in enumerate(lines) if line.startswith("flexmdm"))
    assert lines[first + 2].startswith("held-out")  # two lines each: nothing is broken in two
    assert "2: 1.2%" in lines[first] and "1,024 steps" in lines[first + 1]


def test_the_page_has_the_entropy_of_openings_if_there_is_one(tmp_path):
    html = written(tmp_path, [score(opening_entropy=Interval(2.75, 2.5, 3.0)), score("mdm")])
    assert "<td>2.75<span>2.50 – 3.00</span></td>" in html and html.count("of the first 32 tokens") == 2
    assert "of the first 32 tokens" not in written(tmp_path, [score()])


def test_without_perplexity_the_page_does_not_speak_of_it(tmp_path):
    html = written(tmp_path, [score(generative_perplexity=NOTHING, kept=math.nan)])
    assert "perplexity" not in html.lower() and "kept" not in html and "fluency" not in html
    assert html.count('class="chart"') == 2 and "10% / 50% / 90%" in html


def test_scores_are_plain_json():
    stored = json.loads(json.dumps(score(length_w1=NOTHING).to_dict(), allow_nan=False))
    assert stored["length_w1"] == {"value": None, "low": None, "high": None}
    assert stored["samples"] == ["one text", "two texts"]
    assert LIKELIHOOD.to_dict()["bits_per_character"] == {"value": 1.5, "standard_error": 0.01}
