"""Data is prepared once; what is stored is whole, right, and made anew when anything changed."""

import io
import json
import os
import platform
import subprocess
import sys
import time

import pytest
import torch
from rich.console import Console

from flexmdm.data import encoding, prepared
from flexmdm.data.encoding import Preparation
from flexmdm.data.prepared import histogram, prepare
from flexmdm.data.reading import Source
from flexmdm.data.tokenizers import TextTokenizer
from flexmdm.progress import ProgressBar

WORDS = [f"word{i}" for i in range(200)]


@pytest.fixture
def data(tmp_path):
    file = tmp_path / "words.txt"
    file.write_text("\n".join(WORDS))
    return file


@pytest.fixture
def run(tmp_path):
    """Prepare in a cache of the test; ``run.said`` is what was printed last."""

    def run(path, given=None, reading=None, **settings):
        preparation = Preparation(Source((str(path),), **(reading or {})), **settings)
        console = Console(file=io.StringIO(), width=200)
        try:
            return prepare(preparation, given, tmp_path / "cache", console)
        finally:
            run.said = console.file.getvalue()

    return run


def texts(prepared, store):
    return [prepared.tokenizer.decode(ids) for ids in store.take(torch.arange(len(store))).tolist()]


def entries(tmp_path):
    return sorted(path.name for path in (tmp_path / "cache").iterdir() if not path.is_symlink())


# What comes out -------------------------------------------------------------------------------------------------------


def test_every_document_lands_on_one_side(data, run):
    result = run(data, held_out=0.2)
    train, validation = texts(result, result.train), texts(result, result.validation)
    assert sorted(train + validation) == sorted(WORDS)
    assert 20 <= len(validation) <= 60  # 40 expected, a standard deviation of 5.7
    assert train == [word for word in WORDS if word in set(train)]


def test_the_seed_decides_what_is_held_out(data, run):
    first, again, other = run(data), run(data, max_length=100), run(data, seed=1)
    assert texts(first, first.validation) == texts(again, again.validation) != texts(other, other.validation)


@pytest.mark.parametrize("kind", ["characters", "bytes", "bpe"])
def test_sequences_know_how_many_characters_they_are(tmp_path, run, kind):
    file = tmp_path / "long.txt"
    lines = ["Ein schöner Tag, nicht wahr? Ja. 東京は大きい都市です。 " * (1 + i % 7) for i in range(60)]
    file.write_text("\n".join(lines))
    result = run(file, TextTokenizer.train(kind, lines), max_length=40, held_out=0.3)
    for store in (result.train, result.validation):
        assert store.characters.tolist() == [len(text) for text in texts(result, store)]
    assert sum(int(s.characters.sum()) for s in (result.train, result.validation)) == sum(map(len, lines))
    assert result.counts["characters"] == sum(map(len, lines))


def test_long_documents_are_split_and_their_pieces_stay_together(tmp_path, run):
    file = tmp_path / "long.txt"
    letters = [chr(ord("a") + i) for i in range(26)]
    file.write_text("\n".join(letter * (5 + 7 * i) for i, letter in enumerate(letters)))
    result = run(file, tokenizer="characters", max_length=10, held_out=0.4)
    train, validation = texts(result, result.train), texts(result, result.validation)
    assert max(map(len, train + validation)) <= 10
    assert not set("".join(train)) & set("".join(validation))
    assert "".join(sorted("".join(train + validation))) == "".join(sorted(file.read_text().replace("\n", "")))
    assert result.counts["split"] == 25 and "25 long documents split" in run.said


def test_paragraphs_of_one_record_stay_together(tmp_path, run):
    file = tmp_path / "articles.jsonl"
    file.write_text("\n".join(json.dumps({"text": "\n\n".join(f"{i} {j}" for j in range(5))}) for i in range(40)))
    result = run(file, reading={"paragraphs": True}, held_out=0.3)
    sides = [{text.split()[0] for text in texts(result, store)} for store in (result.train, result.validation)]
    assert not sides[0] & sides[1] and len(sides[0] | sides[1]) == 40
    assert result.counts["documents"] == result.counts["sequences"] == 200


def test_long_documents_can_be_dropped(data, run):
    result = run(data, max_length=6, long="drop")
    assert result.counts["dropped"] == 100 and "100 long documents dropped" in run.said
    assert sorted(texts(result, result.train) + texts(result, result.validation)) == sorted(WORDS[:100])


def test_other_files_can_be_held_out(data, tmp_path, run):
    other = tmp_path / "other.txt"
    other.write_text("über\nword1\n")
    result = run(data, held_out_source=Source((str(other),)))
    assert texts(result, result.train) == WORDS
    assert texts(result, result.validation) == ["über", "word1"]


def test_everything_is_counted_and_said(tmp_path, run):
    file = tmp_path / "a.jsonl"
    lines = [{"text": "x" * (1 + i % 12)} for i in range(60)] + [{"text": " "}, {"text": ""}, {"no": 1}]
    file.write_text("\n".join(map(json.dumps, lines)))
    result = run(file, reading={"skip_bad": True}, max_length=8, held_out=0.3)
    assert result.counts == {
        "documents": 62,
        "characters": 5 * sum(range(1, 13)) + 1,
        "skipped": 1,
        "empty": 2,
        "split": 20,
        "dropped": 0,
        "sequences": 80,
        "tokens": 5 * sum(range(1, 13)),
        "unknown": 0,
    }
    for line in (
        "62 documents, 391 characters: 80 sequences of 390 tokens (characters, 2 different ones)",
        f"{len(result.train)} sequences to train on, {len(result.validation)} held out",
        "20 long documents split",
        "2 empty documents dropped",
        "1 bad lines skipped",
        f"the first bad line: {file}, line 63: no field 'text', only 'no'",
    ):
        assert line in run.said
    lengths = torch.cat([result.train.lengths, result.validation.lengths])
    assert f"tokens per sequence\n{histogram(lengths)}\n" in run.said and "█" in run.said


def test_what_a_published_tokenizer_does_not_know_is_counted_and_named(data, tmp_path, run):
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    published = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    published.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    published.train([str(data)], trainers.WordPieceTrainer(special_tokens=["[UNK]"], show_progress=False))
    published.save(str(tmp_path / "tokenizer.json"))
    given = str(tmp_path / "tokenizer.json")
    assert run(data, tokenizer=given).counts["unknown"] == 0 and "does not know" not in run.said
    data.write_text("\n".join([*WORDS, "wörd1 word2 wörd3", "word1 €", "wörd4"]))
    for _ in range(2):  # also if it was prepared before
        assert run(data, tokenizer=given).counts["unknown"] == 3
        assert "3 documents with characters that the tokenizer does not know\n" in run.said
        assert "the most frequent first: 'ö' (U+00F6) 3 times, '€' (U+20AC) 1 times\n" in run.said


def test_what_was_guessed_about_the_data_is_said(tmp_path, run):
    file = tmp_path / "names.csv"
    file.write_text("\n".join(WORDS))
    for _ in range(2):
        assert run(file, held_out=0.2).counts["documents"] == 199
        assert f"{file}: the first line, 'word0', was taken for the name of its only column" in run.said


def test_without_a_terminal_every_long_phase_begins_with_a_line(data, run, monkeypatch):
    run(data, tokenizer="bpe")
    assert "..." not in run.said  # it is over at once
    monkeypatch.setattr(encoding, "_LONG", 100)
    run(data, tokenizer="bpe", seed=1)
    phases = ["making the tokenizer (0 MB) ...", "learning the vocabulary (0 MB) ...", "tokenizing (0 MB) ..."]
    assert run.said.splitlines()[:3] == phases


def test_auto_looks_at_the_data(tmp_path, data, run):
    prose = tmp_path / "prose.txt"
    prose.write_text(
        "\n".join(f"It was the best of times, it was the worst of times, number {i}." * 2 for i in range(80))
    )
    assert run(data).tokenizer.kind == "characters"
    assert run(prose).tokenizer.kind == "bpe"
    assert run(data, vocab_size=260).tokenizer.size == 260


def test_bpe_learns_from_a_sample_of_the_whole_file(tmp_path, monkeypatch):
    file = tmp_path / "a.txt"
    file.write_text("\n".join(f"the {i}th line" for i in range(200_000)))  # more than one read of a megabyte
    seen = []
    monkeypatch.setattr(encoding, "_SAMPLE", 40_000)
    monkeypatch.setattr(TextTokenizer, "train", lambda kind, texts, *_: seen.extend(texts))
    encoding.choose_tokenizer(Preparation(Source((str(file),)), "bpe"), ProgressBar(""))
    assert 5_000 < sum(map(len, seen)) <= 41_000
    assert int(seen[-1].split()[1].removesuffix("th")) > 100_000


def test_a_bar_follows_the_bytes_that_were_read(data, tmp_path):
    bar = ProgressBar("")
    preparation = Preparation(Source((str(data),)), "bpe")
    tokenizer = encoding.choose_tokenizer(preparation, bar)
    assert [(task.description, task.total) for task in bar.progress.tasks] == [("learning the vocabulary", None)]
    encoding.Encoder(preparation, tokenizer, tmp_path).encode_all(bar)
    (task,), size = bar.progress.tasks, data.stat().st_size
    assert (task.description, task.completed, task.total) == ("tokenizing", size, size)


def test_lengths_are_drawn_in_about_ten_rows():
    picture = histogram(torch.tensor([3, 4, 4, 50, 99])).splitlines()
    assert len(picture) == 10 and picture[0].endswith(" 3") and picture[-1].startswith("93-99")
    assert histogram(torch.tensor([7, 7]), width=2) == "7  ██ 2"


# The cache ------------------------------------------------------------------------------------------------------------


def test_the_second_time_the_input_is_not_read(data, run, monkeypatch):
    first = run(data)
    said = run.said
    monkeypatch.setattr(encoding, "numbered", None)
    began = time.monotonic()
    second = run(data)
    assert time.monotonic() - began < 0.5
    assert run.said == said
    assert (second.folder, second.counts) == (first.folder, first.counts)
    assert texts(second, second.train) == texts(first, first.train)


def test_data_that_is_gone_is_found_with_the_tokenizer_it_was_prepared_for(data, run):
    first = run(data)
    data.unlink()
    again = run(data, first.tokenizer)
    assert texts(again, again.train) == texts(first, first.train)
    assert f"no such file or folder: {data}; going by what was prepared from it earlier" in run.said
    with pytest.raises(FileNotFoundError, match=f"no such file or folder: {data}$"):
        run(data)  # a new run needs the file
    with pytest.raises(FileNotFoundError, match="put it back, or set FLEXMDM_CACHE"):
        run(data, first.tokenizer, max_length=7)


def test_of_data_that_changed_and_is_gone_the_last_is_found(data, run):
    tokenizer = run(data).tokenizer
    data.write_text("\n".join(reversed(WORDS)))
    last = run(data, tokenizer)
    data.unlink()
    again = run(data, tokenizer)
    assert texts(again, again.train) == texts(last, last.train)


def test_other_settings_or_files_are_other_data(data, tmp_path, run):
    other = tmp_path / "other.txt"
    other.write_text("one\ntwo\n")
    given = TextTokenizer.train("bytes")
    folders = {
        run(data).folder,
        run(data, given).folder,
        run(data, TextTokenizer.train("bpe", WORDS)).folder,
        *(
            run(data, **setting).folder
            for setting in (
                {"max_length": 5},
                {"max_length": 6, "long": "drop"},
                {"held_out": 0.1},
                {"seed": 1},
                {"tokenizer": "bytes"},
                {"tokenizer": "bpe"},
                {"vocab_size": 260},
                {"reading": {"paragraphs": False, "skip_bad": True}},
                {"held_out_source": Source((str(other),))},
            )
        ),
    }
    assert len(folders) == 12
    assert entries(tmp_path) == sorted(folder.name for folder in folders)
    assert run(data, given, tokenizer="characters").folder in folders


def test_input_that_changed_is_prepared_again(data, run):
    first = run(data)
    data.write_text("\n".join(WORDS[:150]))
    second = run(data)
    assert second.folder != first.folder and second.counts["documents"] == 150


def test_a_tokenizer_file_that_changed_is_noticed(data, tmp_path, run):
    folder = tmp_path / "tokenizer"
    TextTokenizer.train("bytes").save(folder)
    first = run(data, tokenizer=str(folder))
    TextTokenizer.train("characters", WORDS).save(folder)
    second = run(data, tokenizer=str(folder))
    assert (first.tokenizer.kind, second.tokenizer.kind) == ("bytes", "characters")


@pytest.mark.parametrize("name", ["train.tokens.bin", "validation.offsets.bin", "tokenizer.json", "prepared.json"])
@pytest.mark.parametrize("damage", ["missing", "short"])
def test_damaged_data_is_made_anew_and_that_is_said(data, run, name, damage):
    first = run(data)
    expected = texts(first, first.train)
    file = first.folder / name
    if damage == "missing":
        file.unlink()
    else:
        file.write_bytes(file.read_bytes()[:-3])
    again = run(data)
    assert f"the prepared data in {first.folder} is damaged; making it anew" in run.said
    assert texts(again, again.train) == expected
    run(data)
    assert "damaged" not in run.said


def test_a_preparation_that_fails_leaves_nothing(tmp_path, run):
    file = tmp_path / "a.jsonl"
    file.write_text('{"text": "one"}\n' * 5000 + "{")
    with pytest.raises(ValueError, match=r"a.jsonl, line 5001: malformed JSON"):
        run(file, tokenizer="bytes")
    assert entries(tmp_path) == []


def test_data_that_changes_while_it_is_read_is_refused(data, tmp_path, run, monkeypatch):
    make = prepared._make

    def changing(*arguments):
        data.write_text("\n".join(WORDS) + "\nand more")
        return make(*arguments)

    monkeypatch.setattr(prepared, "_make", changing)
    with pytest.raises(ValueError, match="the data changed while it was read"):
        run(data)
    assert entries(tmp_path) == []


def test_what_dead_processes_left_is_removed_and_what_live_ones_have_stays(data, tmp_path, run):
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    host = platform.node()
    names = [
        f"unfinished-{host}-{gone.pid}-a",
        f"unfinished-{host}-{os.getpid()}-b",
        f"unfinished-elsewhere-{gone.pid}-c",
    ]
    for name in names:
        (tmp_path / "cache" / name).mkdir(parents=True)
        (tmp_path / "cache" / name / "train.tokens.bin").write_bytes(b"half")
    result = run(data)
    assert entries(tmp_path) == sorted([result.folder.name, *names[1:]])


def test_a_process_that_is_overtaken_by_another_takes_what_that_made(data, tmp_path, run, monkeypatch):
    code = (
        "import sys; from pathlib import Path; from rich.console import Console\n"
        "from flexmdm.data import Preparation, Source, prepare\n"
        "p = prepare(Preparation(Source((sys.argv[1],)), 'bpe'), None, Path(sys.argv[2]), Console(quiet=True))\n"
        "print(p.folder.name, p.train.lengths.sum().item(), p.folder.stat().st_ino)"
    )
    said = []

    def overtaken(*arguments):
        problem = make(*arguments)
        command = [sys.executable, "-c", code, str(data), str(tmp_path / "cache")]
        said.append(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout)
        return problem

    make = prepared._make
    monkeypatch.setattr(prepared, "_make", overtaken)
    result = run(data, tokenizer="bpe")
    assert said == [f"{result.folder.name} {int(result.train.lengths.sum())} {result.folder.stat().st_ino}\n"]
    assert entries(tmp_path) == [result.folder.name]


def test_data_is_found_again_with_the_tokenizer_that_was_made_from_it(data, run, monkeypatch):
    first = run(data, tokenizer="bpe")
    monkeypatch.setattr(prepared, "_make", None)
    again = run(data, TextTokenizer.load(first.folder), tokenizer="auto")
    assert again.folder.resolve() == first.folder.resolve() and len(again.train) == len(first.train)


def test_a_cache_that_cannot_be_written_says_what_to_set(data, tmp_path):
    in_the_way = tmp_path / "file"
    in_the_way.write_text("")
    with pytest.raises(OSError, match="set FLEXMDM_CACHE to a folder you can write to"):
        prepare(Preparation(Source((str(data),))), cache=in_the_way / "cache", console=Console(quiet=True))


def test_the_cache_is_where_the_environment_says(data, tmp_path, monkeypatch):
    preparation = Preparation(Source((str(data),)))
    monkeypatch.delenv("FLEXMDM_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert prepare(preparation, console=Console(quiet=True)).folder.parent == tmp_path / "xdg" / "flexmdm"
    monkeypatch.setenv("FLEXMDM_CACHE", str(tmp_path / "own"))
    assert prepare(preparation, console=Console(quiet=True)).folder.parent == tmp_path / "own"
    monkeypatch.delenv("FLEXMDM_CACHE")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert prepare(preparation, console=Console(quiet=True)).folder.parent == tmp_path / ".cache" / "flexmdm"


# What is refused ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"max_length": 0}, "at least 1 token, got max_length 0"),
        ({"long": "cut"}, "long is split or drop, got 'cut'"),
        ({"held_out": 0.0}, "between 0 and 1, such as 0.05; got 0.0"),
        ({"held_out": 1.0}, "between 0 and 1"),
        ({"tokenizer": "bytes", "vocab_size": 300}, "only bpe has a vocabulary size"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        Preparation(Source(("a.txt",)), **settings)


def test_data_too_small_for_two_sides_is_refused(tmp_path, run):
    file = tmp_path / "one.txt"
    file.write_text("only one")
    with pytest.raises(
        ValueError, match=r"too small: of 1 document\(s\) none is left to validate on, with a share of 0.05"
    ) as caught:
        run(file)
    assert str(caught.value).endswith("held out. Give more data or hold out another share (--held-out)")
    with pytest.raises(ValueError, match="Give more data$"):
        run(file, held_out_source=Source((str(write_blank(tmp_path)),)))
    assert entries(tmp_path) == []


def write_blank(tmp_path):
    file = tmp_path / "blank.jsonl"
    file.write_text('{"text": " "}\n')
    return file


def test_a_limit_that_nothing_keeps_to_is_said_to_be_too_small(tmp_path, run):
    file = tmp_path / "two.txt"
    file.write_text("first line\nsecond line\n")
    with pytest.raises(ValueError, match="^the longest sequence is too short: of 2 ") as caught:
        run(file, max_length=3, long="drop")
    assert str(caught.value).endswith(
        "none is left to train on (2 longer than 3 tokens, 0 empty). "
        "Allow longer sequences (--max-length) or split long documents (--long split)"
    )


def test_bad_lines_are_counted_where_too_little_is_left(tmp_path, run):
    file = tmp_path / "rows.jsonl"
    file.write_text('{"text": "only one"}\n{\n{\n')
    with pytest.raises(ValueError, match="too small") as caught:
        run(file, reading={"skip_bad": True})
    assert f"; 2 bad line(s) were skipped, the first bad line: {file}, line 2: malformed JSON" in str(caught.value)
    assert "--max-length" not in str(caught.value)


def test_characters_that_a_given_tokenizer_does_not_know_are_named(data, run):
    with pytest.raises(ValueError, match=r"'o' \(U\+006F\)"):
        run(data, TextTokenizer.train("characters", ["wrd0123456789"]))


def test_a_missing_file_is_said_even_if_its_data_is_there(data, run):
    run(data)
    data.unlink()
    with pytest.raises(FileNotFoundError, match="no such file or folder"):
        run(data)
