import time

import pytest

from flexmdm.tasks.math.answers import extract_answer, is_correct

LONG = 100_000
ANSWERS = [
    # as GSM8K writes it
    ("48 + 24 = 72 clips altogether.\n#### 72", "72"),
    ("48/2 = <<48/2=24>>24 clips.\n#### 24", "24"),
    ("#### 2,125", "2125"),
    ("#### 109,200,000", "109200000"),
    ("####42", "42"),
    ("#### -5", "-5"),
    ("#### −5", "-5"),
    ("#### $18", "18"),
    ("#### -$18", "-18"),
    ("#### $-18", "-18"),
    ("#### 18 dollars", "18"),
    ("#### 50%", "50"),
    ("#### 0.50", "0.5"),
    ("#### .75", "0.75"),
    ("#### 7.", "7"),
    ("#### 7.00", "7"),
    ("#### 3/4", "0.75"),
    ("#### 1 1/2", "1.5"),
    ("#### **42**", "42"),
    ("#### $42$", "42"),
    ("#### \\boxed{42}", "42"),
    ("#### The final answer is 42", "42"),
    ("#### Answer: 42", "42"),
    ("#### x = 42", "42"),
    ("#### 5 + 3 = 8", "8"),
    ("#### 18<|endoftext|>", "18"),
    ("#### 18\n\nQuestion: Tom has 5 apples.\nAnswer: 5 + 2 = 7\n#### 7", "18"),
    ("#### 18\n#### 19", "18"),  # the first, as the official scorer does
    ("####\n\n42", "42"),
    ("#### 18 = 9 * 2", "18"),  # the result may stand first
    ("#### 12 = 3 x 4", "12"),
    ("#### 12 = 3x4", "12"),
    ("#### 12 = 3 × 4", "12"),
    ("#### 12 = 3 · 4", "12"),
    ("#### 12 = 3 times 4", "12"),
    ("#### $12 = 3 boxes x $4", "12"),
    (r"#### 12 = 3 \times 4", "12"),
    (r"#### 12 = 3\times4", "12"),
    (r"\boxed{12 = 3 \cdot 4}", "12"),
    ("The answer is 12 = 3 x 4.", "12"),
    ("#### 3 x 4 = 12", "12"),
    ("#### 3 times = 12 days", "12"),
    ("the numbers are x1 = 3 and x2", "3"),
    ("so Toby has 2x-10", "2"),
    ("#### 12 = 3 x ½ x 8", "12"),
    ("that is five times 10^2", "10"),
    (r"1, 2, \cdots", "2"),
    ("#### x = 1.5 x 10^3", "1500"),
    ("#### 1 000", "1000"),
    ("#### 1 000 000 square feet", "1000000"),
    ("#### $12 345.50", "12345.5"),
    ("#### 12 345 apples", "12345"),
    ("#### 12\u00a0345 red apples", "12345"),
    ("#### 12\u2009345\u2009678 apples", "12345678"),
    ("#### 12\u202f345", "12345"),
    ("#### 2 x 625 = 1 250", "1250"),
    ("#### 1 250 = 2 x 625", "1250"),
    ("#### 1 250 (x = 3)", "1250"),
    (r"\boxed{1 250}", "1250"),
    ("The answer is 1 250.", "1250"),
    ("So she has 1 000 left.", "1000"),
    ("Answer: 12 345", "12345"),
    ("**Answer:** 12 345 apples", "12345"),
    ("She earns $12 345.", "12345"),
    ("She earns $12 345.50 a year", "12345.5"),
    ("Total: 12 345", "12345"),
    ("She buys 3 500 ml bottles.", "3"),
    ("Answer: 3 500 ml bottles", "3"),
    ("#### 3 500 ml bottles", "3"),  # two numbers
    ("#### 3 500ml", "3"),
    ("#### 3 125/250", "3.5"),
    ("#### 3\u00a0125/250", "3.5"),
    ("#### 3 50", "3"),
    ("#### 12 (x = 3)", "12"),
    ("#### 40 hours/week = 8*5", "40"),
    ("The answer is 72 = 48 + 24.", "72"),
    ("The answer is 12 (since 4 = 12/3).", "12"),
    ("The answer is (5 + 3 = 8) 8.", "8"),
    ("The answer is 20, because each box has 4*2=8 pens.", "20"),  # what explains it does not count
    ("#### 20, as each box has 4*2=8 pens", "20"),
    ("#### 20 as each box has 4*2=8 pens", "20"),
    ("#### 20 pens. Each box has 4*2=8 pens", "20"),
    ("The answer is 120 minutes, as 1 hour = 60 minutes.", "120"),
    ("The answer is 18 because she has x=3 boxes of 6.", "18"),
    ("The answer is 5 + 3 = 8, because 7 + 2 = 9 are too many.", "8"),
    ("The answer is 5 + 3 = 8 (as x = 3).", "8"),
    ("#### 12 345, since x = 3", "12345"),
    ("The answer is 1,000 + 2,000 = 3,000.", "3000"),
    ("The answer is 3 boxes, 4 pens + 5 pens = 9 pens.", "9"),
    ("The answer is 5 apples, plus 3 pears = 8 fruits.", "8"),
    ("#### 3 times as many as 4 = 12", "12"),
    ("#### 5 hrs. + 3 sq. ft. = 8", "8"),
    ("#### \uff17\uff12", "72"),  # full-width digits
    ("#### \u20135", "-5"),  # an en dash
    ("The answer is \u20135.", "-5"),
    ("#### - 5", "-5"),
    ("#### - $5", "-5"),
    ("#### $- 5$", "-5"),
    ("#### x = - 5", "-5"),
    (r"\boxed{- 5}", "-5"),
    ("10 - 15 = - 5 degrees", "-5"),
    ("#### 10 - 5", "10"),
    ("Answer:\n- 42 apples", "42"),  # an item of a list
    ("#### Rs. 1,50,000", "150000"),  # lakh
    ("#### Step 1: add\n5 + 6 = 11\n#### 11", "11"),
    ("#### 1. Add the apples\n5 + 6 = 11\n#### 2. Subtract\n11 - 4 = 7\nThe answer is 7.", "7"),
    # LaTeX
    (r"Thus the total is \boxed{72}.", "72"),
    (r"\boxed{10} is wrong, so \boxed{12}. There are 3 steps.", "12"),
    (r"\boxed{\$1{,}234.50}", "1234.5"),
    (r"\boxed{1\,234}", "1234"),
    (r"\boxed{\frac{3}{4}}", "0.75"),
    (r"\boxed{-\dfrac{1}{3}}", "-1/3"),
    (r"\boxed{1\frac{1}{2}}", "1.5"),
    (r"\boxed{42\text{ dollars}}", "42"),
    (r"\boxed{\text{42 apples}}", "42"),
    (r"\boxed{x = 42}", "42"),
    (r"\boxed{50\%}", "50"),
    (r"\boxed 42", "42"),
    (r"\[ 6 \times 7 = 42 \]", "42"),
    (r"So \(x = -7\).", "-7"),
    (r"It is $1.5 \times 10^{3}$", "1500"),
    (r"The area is 12 m^2.", "12"),
    (r"The area is 12 \text{ cm}^{2}", "12"),
    (r"\boxed{A}, that is 5", "5"),
    # in words
    ("The answer is 42.", "42"),
    ("The answer is: $1,200.00.", "1200"),
    ("The answer to the question is 42 apples, of which 3 are red.", "42"),
    ("The answer is 5 + 3 = 8.", "8"),
    ("The answer is 42. That took 3 steps.", "42"),
    ("First I thought the answer is 10, but the answer is 12 because of 2 more.", "12"),
    ("**Answer:** 42 apples", "42"),
    ("Final Answer: $42", "42"),
    ("Answer:\n\n42", "42"),
    ("Answer: 3 + 4 = 7 apples. She eats 2 of them, so 7 - 2 = 5 are left.", "5"),
    ("The answer is Rs. 500", "500"),
    ("The answer is -3 degrees.", "-3"),
    ("The answer is 2.5 million.", "2500000"),
    ("the answer is six. No, 7.", "7"),
    # only numbers
    ("So she makes $18 every day.", "18"),
    ("She has 10-5=5 left", "5"),
    ("There are 20 - 13 = 7", "7"),
    ("It costs $1,234,567.89!", "1234567.89"),
    ("1,2,3 and 4", "4"),
    ("He runs 3½ miles", "3.5"),
    ("about ¼ of it", "0.25"),
    ("that is 1/3 of the pie", "1/3"),
    ("it weighs 12kg", "12"),
    ("she is 5th", "5"),
    ("the temperature is −4°C", "-4"),
    ("the total is 42", "42"),
    ("42 people have COVID-19", "42"),
    ("0", "0"),
    ("-0", "0"),
    ("007", "7"),
    # nothing
    ("", None),
    ("   \n", None),
    ("I do not know.", None),
    ("####", None),
    (r"\boxed{}", None),
    ("$", None),
    ("1/0", None),
    ("9" * 5000, None),
]


@pytest.mark.parametrize(("text", "answer"), ANSWERS)
def test_the_answer_is_found(text, answer):
    assert extract_answer(text) == answer


def test_the_table_is_long_enough():
    assert len(ANSWERS) >= 60


@pytest.mark.parametrize("text", [text for text, answer in ANSWERS if answer is not None])
def test_the_canonical_form_is_its_own_answer(text):
    answer = extract_answer(text)
    assert answer is not None and extract_answer(answer) == answer and extract_answer(f"so\n#### {answer}") == answer


@pytest.mark.parametrize(
    ("before", "repeated", "behind"),
    [
        ("", "{", ""),
        ("", r"\boxed{", ""),
        ("", "1,", ""),
        ("", "11,", ""),
        ("", "111,", ""),
        ("", "$12 345 ", ""),
        ("#### 5 ", "(", ""),
        ("#### 5 ", ", ", ""),
        ("#### 5 ", "as many ", ""),
        ("", "{- ", ""),
        ("", "answer is ", ""),
        ("", "3 x ", ""),
        ("#### ", "-", ""),
        ("#### ", " 000", ""),
        ("#### 5 (", "=", ""),
        ("a", "\n", "b"),
    ],
)
def test_a_long_and_odd_text_takes_no_time(before, repeated, behind):
    """A tenth of a second or so; patterns whose time grows with the square of the length took minutes."""
    start = time.process_time()
    extract_answer(before + repeated * (LONG // len(repeated)) + behind)
    assert time.process_time() - start < 3


def test_numbers_are_compared_and_not_strings():
    assert is_correct("She makes $18.00 a day.", "9 * 2 = $<<9*2=18>>18\n#### 18")
    assert is_correct("#### 1000", "#### 1,000")
    assert not is_correct("#### 0.33", "1/3")
    assert not is_correct("", "18")


def test_a_reference_without_a_number_is_an_error():
    with pytest.raises(ValueError, match="no number"):
        is_correct("18", "eighteen")
