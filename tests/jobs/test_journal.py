import json

import pytest

from flexmdm.jobs.journal import Journal

LINES = [{"text": "a\r\u2028b"}, {"text": "é"}]


def test_lines_are_there_again_with_the_same_settings(tmp_path):
    file = tmp_path / "deep" / "mine.jsonl"
    Journal(file, {"seed": 0, "window": (5.0, 64)}).add(LINES)
    again = Journal(file, {"seed": 0, "window": (5.0, 64)})
    assert again.lines == LINES and not again.changed
    again.add([{"text": "c"}])
    assert len(Journal(file, {"seed": 0, "window": [5.0, 64]}).lines) == 3


def test_other_settings_begin_anew_and_are_named(tmp_path):
    file = tmp_path / "mine.jsonl"
    Journal(file, {"seed": 0, "steps": 4}).add(LINES)
    other = Journal(file, {"seed": 1, "steps": 4, "top_p": 0.9})
    assert other.lines == [] and other.changed == ["seed", "top_p"] and file.read_text() == ""
    assert json.loads(file.with_suffix(".json").read_text())["seed"] == 1


def test_lines_of_other_settings_are_moved_aside(tmp_path):
    file = tmp_path / "mine-4.jsonl"
    for seed in range(3):
        journal = Journal(file, {"seed": seed})
        assert journal.moved == (tmp_path / f"mine-4.{seed}.jsonl" if seed else None)
        journal.add([{"text": f"of {seed}"}])
        file.with_suffix(".results.jsonl").write_text(f"about {seed}")
    for seed, name in enumerate(("mine-4.1", "mine-4.2", "mine-4")):
        assert Journal(tmp_path / f"{name}.jsonl", {"seed": seed}).lines == [{"text": f"of {seed}"}]
        assert (tmp_path / f"{name}.results.jsonl").read_text() == f"about {seed}"


def test_of_a_journal_without_lines_there_is_nothing_to_move(tmp_path):
    file = tmp_path / "mine.jsonl"
    Journal(file, {"seed": 0})
    assert Journal(file, {"seed": 1}).moved is None and sorted(tmp_path.iterdir()) == [file.with_suffix(".json"), file]


def test_lines_without_settings_are_not_trusted(tmp_path):
    file = tmp_path / "mine.jsonl"
    file.write_text('{"text": "whose?"}\n')
    journal = Journal(file, {"seed": 0})
    assert journal.lines == [] and journal.moved is not None and "whose?" in journal.moved.read_text()


@pytest.mark.parametrize("cut", ['{"text": "cut o', '{"text": "whole but without its end"}'])
def test_a_last_line_that_was_cut_off_is_removed(tmp_path, cut):
    file = tmp_path / "mine.jsonl"
    Journal(file, {}).add(LINES)
    with open(file, "a") as log:
        log.write(cut)
    journal = Journal(file, {})
    journal.add([{"text": "next"}])
    assert Journal(file, {}).lines == [*LINES, {"text": "next"}]


def test_a_damaged_line_is_an_error_that_names_the_file(tmp_path):
    file = tmp_path / "mine.jsonl"
    Journal(file, {}).add(LINES)
    file.write_text("nonsense\n")
    with pytest.raises(ValueError, match="mine.jsonl is damaged .* delete it"):
        _ = Journal(file, {}).lines


def test_without_a_file_lines_stay_in_memory():
    journal = Journal(None, {"seed": 0})
    journal.add(LINES)
    assert journal.lines == LINES and journal.lines is not LINES
