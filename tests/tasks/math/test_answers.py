import re
import time
from pathlib import Path

import pytest

from flexmdm.tasks.math.answers import extract_answer, is_correct, normalise

LONG = 100_000
ANSWERS = [  # text, by the flexible rule, by the strict rule
    ("48 + 24 = 72 clips altogether.\n#### 72", "72", "72"),
    ("48/2 = <<48/2=24>>24 clips.\n#### 24", "24", "24"),
    ("#### 2,125", "2125", "2125"),
    ("#### 109,200,000", "109200000", "109200000"),
    ("#### -5", "-5", "-5"),
    ("#### 7.", "7", "7"),
    ("#### 7.00", "7.00", "7.00"),  # texts are compared, not numbers
    ("#### 0.50", "0.50", "0.50"),
    ("#### 50%", "50", "50"),
    ("#### 18 dollars", "18", "18"),
    ("#### 18 = 9 * 2", "2", "18"),
    ("#### 5 + 3 = 8", "8", "5"),
    ("#### 1 000", "000", "1"),
    ("#### 3/4", "4", "3"),
    ("#### 10-5", "-5", "10"),
    ("#### 18\n#### 19", "19", "18"),
    ("#### 18<|endoftext|>", "18", "18"),
    ("#### 18</s>19", "18", "18"),
    ("#### 18<|im_end|>\n#### 19", "18", "18"),
    ("#### 18\n\nQuestion: Tom has 5 apples.\nAnswer: 5 + 2 = 7\n#### 7", "18", "18"),
    ("Question: Tom has 5 apples.\n#### 5", None, None),
    ("####42", "42", None),  # the space belongs to the marker
    ("####  42", "42", None),
    ("#### $18", "18", None),
    ("#### -$18", "-18", None),
    ("#### $-18", "-18", None),
    ("#### The final answer is 42", "42", None),
    ("### 42", "42", None),
    ("####\n\n42", "42", None),
    ("#### .", None, ""),
    ("#### Step 1: add\n5 + 6 = 11\n#### 11", "11", "11"),
    (r"Thus the total is \boxed{72}.", "72", None),
    (r"\boxed{\$1{,}234.50}", "234.50", None),
    ("The answer is 42. That took 3 steps.", "3", None),
    ("The answer is: $1,200.00.", "1200.00", None),
    ("So she makes $18 every day.", "18", None),
    ("So she makes $18.", "18", None),
    ("She has 10-5=5 left", "5", None),
    ("It costs $1,234,567.89!", "1234567.89", None),
    ("1,2,3 and 4", "4", None),
    ("it weighs 12kg", "12", None),
    ("the temperature is -4 degrees", "-4", None),
    ("42 people have COVID-19", "-19", None),
    ("It is 42...", "42..", None),
    ("It is 42, but why...", "..", None),
    ("The area is 12 m^2.", "2", None),
    ("0", "0", None),
    ("-0", "-0", None),
    ("007", "007", None),
    ("\uff17\uff12", None, None),
    ("", None, None),
    ("   \n", None, None),
    ("I do not know.", None, None),
    ("####", None, None),
    ("$", None, None),
    ("$$", "", None),
    ("9" * 5000, "9" * 5000, None),
]


@pytest.mark.parametrize(("text", "flexible", "strict"), ANSWERS)
def test_the_answer_is_found_by_both_rules(text, flexible, strict):
    assert (extract_answer(text), extract_answer(text, strict=True)) == (flexible, strict)


@pytest.mark.parametrize(("name", "strict"), [("strict-match", True), ("flexible-extract", False)])
def test_answers_are_read_and_compared_as_lm_eval_does(name, strict):
    """With the task, the filters and the metric of the installed package, on every text with every reference."""
    lm_eval, yaml = pytest.importorskip("lm_eval"), pytest.importorskip("yaml")
    filters, metrics = pytest.importorskip("lm_eval.filters.extraction"), pytest.importorskip("lm_eval.api.metrics")
    task = yaml.safe_load((Path(lm_eval.__file__).parent / "tasks" / "gsm8k" / "gsm8k.yaml").read_text())
    (chosen,) = [one["filter"] for one in task["filter_list"] if one["name"] == name]
    options = {key: value for key, value in chosen[0].items() if key != "function"}
    extract = filters.RegexFilter(**options)
    metric = {key: task["metric_list"][0][key] for key in ("regexes_to_ignore", "ignore_case", "ignore_punctuation")}
    stops = re.compile("|".join(map(re.escape, task["generation_kwargs"]["until"])))
    references = [f"so it is\n#### {number}" for number in ("18", "72", "-5", "2,125", "7.00", "1200.00", "$18", "7.")]
    texts = [text for text, _, _ in ANSWERS]
    found = extract.apply([[stops.split(text)[0]] for text in texts], [{}] * len(texts))
    right = 0
    for text, (answer,) in zip(texts, found, strict=True):
        assert extract_answer(text, strict) == (None if answer == "[invalid]" else normalise(answer)), text
        for reference in references:
            theirs = metrics.exact_match_hf_evaluate(predictions=[answer], references=[reference], **metric)
            assert is_correct(text, reference, strict) == theirs["exact_match"], (text, reference)
            right += is_correct(text, reference, strict)
    assert right >= 15


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("repeated", ["1", "1,", "-", "$", ".", "#### ", "#### 1", "#", "Question", " \n"])
def test_a_long_and_odd_text_takes_no_time(repeated, strict):
    """A hundredth of a second or so; a pattern whose time grows with the square of the length takes minutes."""
    start = time.process_time()
    extract_answer(repeated * (LONG // len(repeated)), strict)
    assert time.process_time() - start < 3


def test_a_reference_is_a_solution_or_a_number():
    assert is_correct("She makes $18 a day.", "9 * 2 = $<<9*2=18>>18\n#### 18")
    assert is_correct("#### 1000", "1,000") and is_correct("#### 1,000", " 1000")
    assert not is_correct("She makes $18.00 a day.", "18")
    assert not is_correct("", "18")
    assert is_correct("#### 18 = 9 * 2", "18", strict=True) and not is_correct("It is 18.", "18", strict=True)
