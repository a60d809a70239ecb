"""Any text survives, no special token gets in, and what was saved is what comes back."""

import json
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from flexmdm.data import tokenizers
from flexmdm.data.tokenizers import TextTokenizer, UnknownCharacters, suggest

ENGLISH = [
    "The quick brown fox jumps over the lazy dog. It isn't tired!",
    'The dog said: "The fox is quick."\nThe fox said nothing.',
    "In 2024 the quick fox and the lazy dog met the other dogs, who were not lazy.",
] * 3
ODD = [
    "",
    " ",
    "naïve e\u0301",
    "😀👩‍👩‍👧 🇩🇪",
    "a\r\nb\n",
    "nul \0 end",
    "<|endoftext|> [MASK] </s>",
    "\ufeff\u2028x",
    "\uffff\U0010ffff",
]


@pytest.fixture(scope="module")
def bpe():
    return TextTokenizer.train("bpe", ENGLISH, 300)


@pytest.fixture(scope="module")
def word_pieces(tmp_path_factory):
    """A tokenizer as others publish them: special tokens, padding, truncation, a template, unused ids."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

    vocab = {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "un": 3, "##happy": 4, "dog": 5, ".": 6, "##s": 9}
    tokenizer = Tokenizer(models.WordPiece(vocab, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.add_special_tokens(["[PAD]", "[UNK]", "[CLS]"])
    tokenizer.post_processor = processors.TemplateProcessing(single="[CLS] $A", special_tokens=[("[CLS]", 2)])
    tokenizer.enable_truncation(4)
    tokenizer.enable_padding(length=4)
    folder = tmp_path_factory.mktemp("word_pieces")
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder


# Round trips ----------------------------------------------------------------------------------------------------------


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=30), max_size=4))
@example(ODD)
def test_any_text_survives_bytes_and_bpe(bpe, texts):
    for tokenizer in (TextTokenizer.train("bytes"), bpe):
        encoded = tokenizer.encode(texts)
        assert [tokenizer.decode(ids) for ids in encoded] == texts
        assert all(0 <= i < tokenizer.size for ids in encoded for i in ids)


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=30), min_size=1, max_size=4))
@example(ODD)
def test_the_texts_of_a_character_tokenizer_survive_it(texts):
    tokenizer = TextTokenizer.train("characters", texts)
    alphabet = sorted(set("".join(texts)))
    assert tokenizer.size == len(alphabet)
    assert tokenizer.encode(texts) == [[alphabet.index(character) for character in text] for text in texts]
    assert [tokenizer.decode(ids) for ids in tokenizer.encode(texts)] == texts


@pytest.mark.parametrize("kind", ["characters", "bytes"])
def test_what_is_encoded_here_is_what_the_saved_file_means(kind, tmp_path):
    from tokenizers import Tokenizer

    tokenizer = TextTokenizer.train(kind, ODD)
    tokenizer.save(tmp_path)
    saved = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    assert tokenizer.encode(ODD) == [saved.encode(text).ids for text in ODD]


def test_byte_ids_are_the_bytes():
    assert TextTokenizer.train("bytes").encode(["é<|x|>\n"]) == [list("é<|x|>\n".encode())]


def test_long_texts_are_encoded_in_blocks_with_the_same_tokens(bpe, monkeypatch):
    text = "  ".join(ENGLISH) + "x" * 30 + " \n " + ENGLISH[0]
    whole = bpe.encode([text, "short", text])
    monkeypatch.setattr(tokenizers, "_BLOCK", 40)
    assert bpe.encode([text, "short", text]) == whole
    assert bpe.decode(bpe.encode(["y" * 100 + " " * 100])[0]) == "y" * 100 + " " * 100


def test_invalid_utf_8_becomes_the_replacement_character(bpe):
    assert TextTokenizer.train("bytes").decode([0x61, 0xC3, 0x62, 0xFF]) == "a\ufffdb\ufffd"
    half = bpe.encode(["é"])[0][:1]
    assert bpe.decode(half) == "\ufffd"


def test_ids_may_be_numpy_numbers(bpe):
    assert bpe.decode(np.array(bpe.encode(["the fox"])[0], dtype=np.uint16)) == "the fox"


# Making them ----------------------------------------------------------------------------------------------------------


def test_unknown_characters_are_named_with_their_code_points():
    tokenizer = TextTokenizer.train("characters", ["abc"])
    with pytest.raises(ValueError) as caught:
        tokenizer.encode(["ab", "aübx", "defghijkl"])
    message = str(caught.value)
    assert message.startswith("11 character(s) that the tokenizer does not know: 'd' (U+0064), 'e' (U+0065)")
    assert "'l' (U+006C), 'x' (U+0078), ...; take them out" in message and "U+00FC" not in message
    with pytest.raises(ValueError, match=r"1 character\(s\) .*: '😀' \(U\+1F600\); take"):
        tokenizer.encode(["😀😀"])


def published(kind, normalizer=None):
    """A tokenizer of Hugging Face that was made from the English texts."""
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    wanted = {"vocab_size": 200, "show_progress": False}
    with_unknown = {**wanted, "special_tokens": ["<unk>"]}
    model, cutter, trainer = {
        "bpe": (models.BPE(), None, trainers.BpeTrainer(**wanted)),
        "unknown": (models.BPE(unk_token="<unk>"), pre_tokenizers.Metaspace(), trainers.BpeTrainer(**with_unknown)),
        "word pieces": (
            models.WordPiece(unk_token="<unk>"),
            pre_tokenizers.BertPreTokenizer(),
            trainers.WordPieceTrainer(**with_unknown),
        ),
        "unigram": (
            models.Unigram(),
            pre_tokenizers.Metaspace(),
            trainers.UnigramTrainer(unk_token="<unk>", **with_unknown),
        ),
        "words": (
            models.WordLevel(unk_token="<unk>"),
            pre_tokenizers.Whitespace(),
            trainers.WordLevelTrainer(**with_unknown),
        ),
        "some bytes": (models.BPE(), pre_tokenizers.ByteLevel(), trainers.BpeTrainer(**wanted)),
        "all bytes": (
            models.BPE(),
            pre_tokenizers.ByteLevel(),
            trainers.BpeTrainer(
                vocab_size=300, show_progress=False, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()
            ),
        ),
    }[kind]
    tokenizer = Tokenizer(model)
    if cutter is not None:
        tokenizer.pre_tokenizer = cutter
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    tokenizer.train_from_iterator(ENGLISH, trainer)
    return TextTokenizer(tokenizer, "pretrained")


@pytest.mark.parametrize("kind", ["bpe", "unknown", "word pieces", "unigram", "words", "some bytes"])
def test_characters_that_a_published_tokenizer_would_lose_are_named(kind):
    tokenizer = published(kind)
    assert not tokenizer.takes_any
    tokenizer.refuse_unknown([*ENGLISH, ""])
    with pytest.raises(UnknownCharacters, match=r"^2 character\(s\) that .*: 'ä' \(U\+00E4\), '€' \(U\+20AC\); take"):
        tokenizer.refuse_unknown(["the däg is lazy", "the quick €"])


@pytest.mark.parametrize("kind", ["unknown", "unigram"])
def test_a_line_break_that_becomes_the_unknown_token_is_unknown(kind):
    tokenizer = published(kind)
    assert tokenizer.unknown_words(["lazy\tdog"]) == {"lazy\tdog": ["\t"]}
    assert not published("word pieces").unknown_words(["lazy\tdog"])  # white space is left out on purpose


def test_a_word_that_is_unknown_though_its_characters_are_not_is_named():
    with pytest.raises(UnknownCharacters, match=r"1 character\(s\) or word\(s\) that .*: 'god'; take"):
        published("words").refuse_unknown(["the god"])


def test_what_a_tokenizer_normalizes_is_known():
    from tokenizers import normalizers

    plain = normalizers.Sequence([normalizers.NFD(), normalizers.StripAccents(), normalizers.Lowercase()])
    for kind in ("bpe", "word pieces", "unigram"):
        assert not published(kind, plain).unknown_words(["dög", "LÄZY", "e\u0301"])
        assert published(kind, plain).unknown_words(["LÄZ€Y"]) == {"LÄZ€Y": ["€"]}


def test_tokenizers_with_a_token_for_every_byte_take_any_text(bpe):
    for tokenizer in (published("all bytes"), bpe, TextTokenizer.train("bytes")):
        assert tokenizer.takes_any and not tokenizer.unknown_words(ODD)
        tokenizer.refuse_unknown(ODD)


def test_a_bpe_vocabulary_has_the_size_that_was_asked_for(bpe):
    assert bpe.size == 300
    assert len(bpe.encode([ENGLISH[0]])[0]) < len(ENGLISH[0]) * 0.8


def test_a_bpe_vocabulary_too_large_for_the_data_says_how_many_there_can_be():
    with pytest.raises(
        ValueError, match=r"supports a bpe vocabulary of (\d+) tokens, not 5000: ask for \1 or fewer"
    ) as e:
        TextTokenizer.train("bpe", ENGLISH, 5000)
    possible = int(str(e.value).split("vocabulary of ")[1].split()[0])
    assert TextTokenizer.train("bpe", ENGLISH, possible).size == possible


def test_without_a_size_bpe_takes_what_suits_the_data():
    assert 256 < TextTokenizer.train("bpe", ENGLISH).size < 300
    assert TextTokenizer.train("bpe", ENGLISH * 200).size < 1000


def test_learning_bpe_twice_gives_the_same():
    assert TextTokenizer.train("bpe", ENGLISH).to_json() == TextTokenizer.train("bpe", iter(ENGLISH)).to_json()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("words", ENGLISH), "characters, bytes, bpe, not 'words'"),
        (("bytes", (), 300), "only bpe has a vocabulary size"),
        (("bpe", ENGLISH, 100), "all 256 bytes in it, so 100 is too small"),
        (("characters", []), "no text to take the characters from"),
    ],
)
def test_what_cannot_be_made_is_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        TextTokenizer.train(*arguments)


def test_short_strings_of_few_characters_are_for_characters_and_text_is_for_bpe():
    assert suggest(["Ada", "Grace", "Zoë"]) == "characters"
    assert suggest(["CC(=O)Oc1ccccc1C(=O)O"] * 5) == "characters"
    assert suggest(["MKTAYIAKQR" * 40] * 5) == "characters"  # long, but without blanks
    assert suggest([" ".join(ENGLISH)]) == "bpe"  # long
    assert suggest([chr(0x4E00 + i) for i in range(200)]) == "bpe"  # a large alphabet


# Saved and found ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["characters", "bytes", "bpe"])
def test_what_was_saved_comes_back(tmp_path, kind):
    tokenizer = TextTokenizer.train(kind, [*ENGLISH, *ODD])
    tokenizer.save(tmp_path / "new")
    for again in (TextTokenizer.load(tmp_path / "new"), TextTokenizer.named(str(tmp_path / "new"))):
        assert (again.kind, again.size, again.to_json()) == (kind, tokenizer.size, tokenizer.to_json())
        assert again.encode(ODD) == tokenizer.encode(ODD)
        assert np.array_equal(again.word_start, tokenizer.word_start)


def test_a_published_tokenizer_adds_nothing_and_cuts_nothing_off(word_pieces, tmp_path):
    for place in (word_pieces, word_pieces / "tokenizer.json"):
        tokenizer = TextTokenizer.named(str(place))
        assert (tokenizer.kind, tokenizer.size) == ("pretrained", 10)
        assert tokenizer.encode(["Unhappy dogs. Dogs.", "dog"]) == [[3, 4, 5, 9, 6, 5, 9, 6], [5]]
        assert 2 not in tokenizer.encode(["[CLS] dog"])[0]
    tokenizer.save(tmp_path)
    assert TextTokenizer.load(tmp_path).kind == "pretrained"
    assert TextTokenizer.load(tmp_path).encode(["[CLS] dog"]) == tokenizer.encode(["[CLS] dog"])


def test_special_tokens_in_a_text_are_text(bpe, tmp_path):
    from tokenizers import Tokenizer

    bpe.save(tmp_path)
    changed = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    changed.add_special_tokens(["<|end|>"])
    changed.save(str(tmp_path / "tokenizer.json"))
    tokenizer = TextTokenizer.named(str(tmp_path))
    assert tokenizer.size == bpe.size + 1
    assert tokenizer.encode(["a<|end|>b"]) == bpe.encode(["a<|end|>b"])
    assert tokenizer.decode([bpe.size]) == "<|end|>"


def test_what_is_no_tokenizer_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"tokenizer.json is missing"):
        TextTokenizer.load(tmp_path)
    (tmp_path / "tokenizer.json").write_text(json.dumps({"model": 1}))
    with pytest.raises(ValueError, match=r"tokenizer.json is no tokenizer of Hugging Face"):
        TextTokenizer.named(str(tmp_path))


def hub(monkeypatch, from_pretrained, answers=True):
    """Stands for the Hugging Face hub and what loads from it."""
    library = SimpleNamespace(AutoTokenizer=SimpleNamespace(from_pretrained=from_pretrained))
    monkeypatch.setitem(sys.modules, "transformers", library)
    asked = []

    def head(*_, timeout):
        asked.append(timeout)
        if not answers:
            raise OSError("no network")

    monkeypatch.setattr("huggingface_hub.get_session", lambda: SimpleNamespace(head=head))
    return asked


def test_without_a_network_the_hub_is_asked_once_and_what_was_fetched_earlier_is_found(bpe, monkeypatch):
    def from_pretrained(name, local_files_only, **_):
        assert local_files_only  # or its library asks again and again, for a minute
        if name != "gpt2":
            raise OSError("We couldn't connect")
        return SimpleNamespace(backend_tokenizer=bpe._tokenizer, get_vocab=bpe._tokenizer.get_vocab)

    asked = hub(monkeypatch, from_pretrained, answers=False)
    assert TextTokenizer.named("gpt2").size == bpe.size
    with pytest.raises(
        ValueError, match=r"no tokenizer 'charcters' \(the Hugging Face hub does not answer, and it was"
    ):
        TextTokenizer.named("charcters")
    assert len(asked) == 2


def test_a_name_on_the_hub_is_found_by_transformers(bpe, monkeypatch):
    slow = SimpleNamespace(get_vocab=bpe._tokenizer.get_vocab)
    found = {"someone/fast": SimpleNamespace(backend_tokenizer=bpe._tokenizer, **vars(slow)), "someone/slow": slow}
    hub(monkeypatch, lambda name, **_: found[name])
    tokenizer = TextTokenizer.named("someone/fast")
    assert (tokenizer.kind, tokenizer.encode(ODD)) == ("pretrained", bpe.encode(ODD))
    with pytest.raises(ValueError, match="'someone/slow' has no tokenizer.json"):
        TextTokenizer.named("someone/slow")


def test_an_unknown_name_says_what_there_is(monkeypatch):
    def nothing(name, **_):
        raise OSError(f"{name} is not a local folder\nand more")

    hub(monkeypatch, nothing)
    with pytest.raises(
        ValueError, match=r"no tokenizer 'charcters' \(OSError: .* folder\); give one of characters, bytes"
    ):
        TextTokenizer.named("charcters")


# Where to cut ---------------------------------------------------------------------------------------------------------


def where(tokenizer, flags):
    return {token for token, flag in zip(tokenizer._token_bytes, flags, strict=True) if flag}


def test_words_begin_with_a_blank_or_with_what_is_no_letter(bpe):
    starts = where(bpe, bpe.word_start)
    assert {b" the", b" ", b".", b'"', b"\n"} <= starts
    assert not {b"t", b"he", b"2", b"\xc3", b"\xa9"} & starts


def test_marks_and_joiners_belong_to_the_word_before():
    tokenizer = TextTokenizer.train("bpe", ["e\u0301 e\u0301 कि कि 👩‍👧 👩‍👧"] * 4)
    joined = {"\u0301", "\u093f", "\u200d"}
    pieces = [bytes(token).decode(errors="replace") for token in tokenizer._token_bytes]
    assert not any(flag and piece[:1] in joined for piece, flag in zip(pieces, tokenizer.word_start, strict=True))


def test_characters_and_bytes_may_be_cut_anywhere_but_inside_a_character():
    assert TextTokenizer.train("characters", ["aé\n"]).word_start.all()
    starts = TextTokenizer.train("bytes").word_start
    assert np.array_equal(starts, [not 0x80 <= byte < 0xC0 for byte in range(256)])


def test_lines_and_sentences_end_behind_their_marks(bpe):
    tokenizer = TextTokenizer.train("characters", ["a.b!c?\n。…,"])
    assert where(tokenizer, tokenizer.newline) == {b"\n"}
    assert where(tokenizer, tokenizer.sentence_end) == {mark.encode() for mark in ".!?。…"}
    assert b"\n" in where(bpe, bpe.newline)
    assert b"." in where(bpe, bpe.sentence_end) and b'"' not in where(bpe, bpe.sentence_end)


def test_word_pieces_know_their_words(word_pieces):
    tokenizer = TextTokenizer.named(str(word_pieces))
    assert tokenizer.word_start[[3, 5, 6]].all() and not tokenizer.word_start[[4, 9]].any()


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=30))
def test_the_characters_of_the_tokens_add_up(bpe, text):
    for tokenizer in (TextTokenizer.train("bytes"), bpe):
        assert tokenizer.characters[tokenizer.encode([text])[0]].sum() == len(text)
