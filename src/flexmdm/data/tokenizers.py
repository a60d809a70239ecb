"""Text to token ids and back: characters, bytes, byte-level BPE or a tokenizer of Hugging Face, behind one face."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain, takewhile
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from flexmdm.backbones.folders import hub_answers
from flexmdm.data.formats import SURROGATE
from flexmdm.data.splitting import Delimiter

if TYPE_CHECKING:
    from tokenizers import Tokenizer

KINDS = ("characters", "bytes", "bpe")
_PRETRAINED = "pretrained"
_FILE, _KIND_FILE, _KIND = "tokenizer.json", "tokenizer_config.json", "tokenizer_kind"
_TEMPLATE, _TEMPLATE_FILE = "chat_template", "chat_template.jinja"
_SPECIAL = tuple(f"{name}_token" for name in ("bos", "eos", "unk", "sep", "pad", "cls", "mask"))
_TOKENIZER_FILES = (_FILE, "vocab.txt", "vocab.json", "*.model")  # one of them is with every tokenizer
_MARK = re.compile(r"\[.+\]|<.+>")  # a token that stands for no text
_FRAMES = (("[CLS]", "[SEP]"), ("<cls>", "<eos>"), ("<s>", "</s>"))  # tokens before and behind every text
_LARGEST_BPE = 8192
_CHARACTERS_PER_MERGE = 128  # a vocabulary of 8192 needs about a million characters
_BLOCK, _BLOCKS = 250_000, 8  # characters of a long text, and how many such at a time: encodings take much memory
_SENTENCE_ENDS = (".", "!", "?", "…", "。", "！", "？")
_CLOSING = "\"'”’»)]}」』）"
_SMALL_ALPHABET, _SHORT_TEXT = 128, 64
_NAMED = 10  # characters in an error
_AROUND = 20  # characters of a text before and behind what is wrong in it

# Byte-level tokenizers write each byte as itself where printable, else as a letter from U+0100 on.
_PRINTABLE = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
_HIDDEN = [byte for byte in range(256) if byte not in _PRINTABLE]
_LETTERS = [chr(byte if byte in _PRINTABLE else 0x100 + _HIDDEN.index(byte)) for byte in range(256)]
_BYTES = {letter: byte for byte, letter in enumerate(_LETTERS)}


class Unanswerable(ValueError):
    """A request that a model cannot take, such as a prompt that is too long for it."""


class UnknownCharacters(Unanswerable):
    """A text has characters that a tokenizer does not know."""


class TextTokenizer:
    """A tokenizer that never adds special tokens and takes special tokens in a text for text.

    Attributes:
        kind: ``characters``, ``bytes``, ``bpe`` or ``pretrained``.
        size: all ids lie in [0, size).
        chat: the chat template and the special tokens that it may name; empty if there is none.

    >>> tokenizer = TextTokenizer.train("characters", ["abba", "cab"])
    >>> tokenizer.size, tokenizer.encode(["abc", "a"])
    (3, [[0, 1, 2], [0]])
    >>> tokenizer.decode([2, 0, 1])
    'cab'
    """

    def __init__(self, tokenizer: Tokenizer, kind: str, chat: dict[str, str] | None = None) -> None:
        tokenizer.no_truncation()
        tokenizer.no_padding()
        tokenizer.encode_special_tokens = True
        self._tokenizer, self.kind, self.chat = tokenizer, kind, chat or {}
        self.size = max(tokenizer.get_vocab(with_added_tokens=True).values(), default=-1) + 1

    # Where they come from ---------------------------------------------------------------------------------------------

    @classmethod
    def train(cls, kind: str, texts: Iterable[str] = (), vocab_size: int | None = None) -> TextTokenizer:
        """Make a tokenizer from texts.

        Args:
            kind: ``characters`` (those of the texts), ``bytes`` (of UTF-8, without looking at the texts), or ``bpe``.
            texts: read once; for ``bpe`` without a size they are held in memory.
            vocab_size: of ``bpe``; by default what suits the amount of text, at most 8192.
        """
        from tokenizers import Tokenizer, decoders, models, pre_tokenizers

        if kind not in KINDS:
            raise ValueError(f"the tokenizers that can be made are {', '.join(KINDS)}, not {kind!r}")
        if vocab_size is not None and kind != "bpe":
            raise ValueError(f"only bpe has a vocabulary size to choose; leave it out for {kind}")
        alphabet = sorted(set(chain.from_iterable(texts))) if kind == "characters" else _LETTERS
        if not alphabet:
            raise ValueError("there is no text to take the characters from")
        vocab = {} if kind == "bpe" else {letter: number for number, letter in enumerate(alphabet)}
        tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[]))
        tokenizer.decoder = decoders.Fuse() if kind == "characters" else decoders.ByteLevel()
        if kind != "characters":
            tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=kind == "bpe")
        if kind == "bpe":
            _learn_merges(tokenizer, texts, vocab_size)
        return cls(tokenizer, kind)

    @classmethod
    def of_characters(cls, vocabulary: Mapping[str, int]) -> TextTokenizer:
        """Make a tokenizer of single characters whose ids are given, as models of proteins have them.

        Longer tokens (``[MASK]``) stand for no text.

        >>> TextTokenizer.of_characters({"[CLS]": 0, "[SEP]": 1, "K": 4, "C": 7}).encode(["CK"])
        [[7, 4]]
        """
        from tokenizers import AddedToken, Tokenizer, decoders, models, processors

        tokenizer = Tokenizer(models.BPE(vocab=dict(vocabulary), merges=[]))
        tokenizer.decoder = decoders.Fuse()
        tokenizer.add_special_tokens([AddedToken(token, special=True) for token in vocabulary if len(token) > 1])
        for frame in _FRAMES:
            if set(frame) <= set(vocabulary):
                single = "{} $A {}".format(*frame)
                marks = [(token, vocabulary[token]) for token in frame]
                tokenizer.post_processor = processors.TemplateProcessing(single=single, special_tokens=marks)
        return cls(tokenizer, "characters")

    @classmethod
    def named(cls, name_or_path: str) -> TextTokenizer:
        """Return a tokenizer of Hugging Face: a folder with tokenizer.json, such a file, or a name on the hub.

        Of a vocabulary of single letters each character of a text is a token.
        """
        path = Path(name_or_path).expanduser()
        if path.is_file() or (path / _FILE).is_file():
            return cls.load(path)
        from flexmdm.backbones.relatives import pretrained_tokenizer

        reachable = path.is_dir() or hub_answers()
        try:
            tokenizer = pretrained_tokenizer(name_or_path, local_files_only=not reachable)
        except Exception as error:  # of any kind: network, hub, file formats
            reason = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
            if not reachable:
                reason = "the Hugging Face hub does not answer, and it was not fetched earlier"
            raise ValueError(
                f"there is no tokenizer {name_or_path!r} ({reason}); "
                f"give one of {', '.join(KINDS)}, a folder with {_FILE}, or a name on the Hugging Face hub"
            ) from error
        if _spells(tokenizer.get_vocab()):
            return cls.of_characters(tokenizer.get_vocab())
        fast = getattr(tokenizer, "backend_tokenizer", None)
        if fast is None:
            raise ValueError(f"the tokenizer {name_or_path!r} has no {_FILE} (it is a slow one); choose a fast one")
        settings = {**getattr(tokenizer, "special_tokens_map", {}), _TEMPLATE: getattr(tokenizer, _TEMPLATE, None)}
        return cls(fast, _PRETRAINED, _chat(settings))

    def save(self, folder: str | Path) -> None:
        """Write tokenizer.json, and the kind next to it; Hugging Face can open the folder too."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / _FILE).write_text(self._tokenizer.to_str(), encoding="utf-8")
        config = {"tokenizer_class": "PreTrainedTokenizerFast", _KIND: self.kind, **self.chat}
        (folder / _KIND_FILE).write_text(json.dumps(config, indent=1), encoding="utf-8")

    @classmethod
    def load(cls, folder: str | Path) -> TextTokenizer:
        """Read what `save` wrote, or any folder with tokenizer.json (or that file itself)."""
        from tokenizers import Tokenizer

        file = Path(folder) / _FILE if Path(folder).is_dir() else Path(folder)
        if not file.is_file():
            raise FileNotFoundError(f"no tokenizer in {folder}: {_FILE} is missing")
        try:
            tokenizer = Tokenizer.from_str(file.read_text(encoding="utf-8"))
        except Exception as error:  # the library raises Exception itself
            raise ValueError(f"{file} is no tokenizer of Hugging Face ({error})") from error
        config, template = file.with_name(_KIND_FILE), file.with_name(_TEMPLATE_FILE)
        settings = json.loads(config.read_text(encoding="utf-8")) if config.is_file() else {}
        if template.is_file():
            settings[_TEMPLATE] = template.read_text(encoding="utf-8")
        if _KIND not in settings and type(tokenizer.model).__name__ == "WordPiece" and _spells(tokenizer.get_vocab()):
            return cls.of_characters(tokenizer.get_vocab())
        return cls(tokenizer, settings.get(_KIND, _PRETRAINED), _chat(settings))

    def to_json(self) -> str:
        """Return all there is to know of it, as text."""
        return json.dumps({_KIND: self.kind, "tokenizer": self._tokenizer.to_str(), **self.chat})

    def same_tokens(self, other: TextTokenizer) -> bool:
        """Return whether every id means the same to both."""
        return self._tokenizer.get_vocab(True) == other._tokenizer.get_vocab(True)  # added tokens too

    # Text to ids and back ---------------------------------------------------------------------------------------------

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        return [ids.tolist() for ids in self.encode_arrays(texts)]

    def encode_arrays(self, texts: Sequence[str]) -> list[np.ndarray]:
        """Return the ids of each text as uint32; much smaller than lists."""
        encoded = iter(self._encode([text for text in texts if len(text) <= _BLOCK]))
        return [next(encoded) if len(text) <= _BLOCK else self._encode_long(text) for text in texts]

    def _encode_long(self, text: str) -> np.ndarray:
        blocks = list(_blocks(text))
        groups = [blocks[first : first + _BLOCKS] for first in range(0, len(blocks), _BLOCKS)]
        return np.concatenate([ids for group in groups for ids in self._encode(group)])

    def _encode(self, texts: list[str]) -> list[np.ndarray]:
        if self.kind == "characters":
            return self._encode_characters(texts)
        if self.kind == "bytes":
            return [np.frombuffer(text.encode(), np.uint8).astype(np.uint32) for text in texts]
        return _ids(self._tokenizer, texts)

    def _encode_characters(self, texts: list[str]) -> list[np.ndarray]:
        """Return what the library would, many times as fast, and notice unknown characters."""
        codes = np.frombuffer("".join(texts).encode("utf-32-le"), np.uint32)
        ids = self._id_of_code[codes]
        if (ids < 0).any():
            unknown = unknown_characters(list(map(chr, np.unique(codes[ids < 0]))))
            raise UnknownCharacters(
                f"{unknown}; take them out of the text, or make a new model from data that has them, or with bytes or "
                "bpe, which take any text"
            )
        ends = np.cumsum([len(text) for text in texts])
        return np.split(ids.astype(np.uint32), ends[:-1]) if texts else []

    @cached_property
    def _id_of_code(self) -> np.ndarray:
        """Return for every code point its id; -1 if it has none."""
        table = np.full(0x110000, -1, dtype=np.int32)
        for token, number in self._tokenizer.get_vocab().items():
            if len(token) == 1:
                table[ord(token)] = number
        return table

    @cached_property
    def frame(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the tokens before and behind every text that the model of this tokenizer learned from.

        They are [CLS] and [SEP], or others of that kind; none of a tokenizer that was made from data.
        """
        some = min(self.alphabet) if self.kind == "characters" else "a"
        encoding = self._tokenizer.encode(some, add_special_tokens=True)
        marks = list(zip(encoding.ids, encoding.special_tokens_mask, strict=True))
        before = tuple(number for number, _ in takewhile(itemgetter(1), marks))
        behind = tuple(number for number, _ in takewhile(itemgetter(1), reversed(marks[len(before) :])))
        return before, behind[::-1]

    @cached_property
    def marks(self) -> frozenset[int]:
        """Return the tokens that stand for no text, such as [CLS]."""
        added = (token for token in self._stored["added_tokens"] if token["special"])
        return frozenset(token["id"] for token in added)

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text; bytes that are no UTF-8 become U+FFFD."""
        return self._tokenizer.decode([int(i) for i in ids], skip_special_tokens=False)

    def write_chat(self, messages: Sequence[dict[str, str]]) -> str:
        """Return messages (``role`` and ``content``) up to where the assistant answers, as the chat template has it."""
        if not self.chat:
            raise ValueError(
                "the tokenizer has no chat template: leave the chat format out, "
                "or name a Hugging Face tokenizer that has one (--tokenizer)"
            )
        from jinja2 import TemplateError
        from transformers.utils.chat_template_utils import render_jinja_template

        try:
            options: dict[str, Any] = {"add_generation_prompt": True, **self.chat}
            return render_jinja_template([list(messages)], **options)[0][0]
        except TemplateError as error:
            raise ValueError(f"the chat template of the tokenizer refuses a conversation: {error}") from error

    def encode_chats(self, chats: Sequence[str]) -> list[np.ndarray]:
        """Return the ids of what `write_chat` wrote, where special tokens are special."""
        return _ids(self._with_special, chats)

    @cached_property
    def _with_special(self) -> Tokenizer:
        from tokenizers import Tokenizer

        return Tokenizer.from_str(self._tokenizer.to_str())

    # What they do not know --------------------------------------------------------------------------------------------

    @cached_property
    def takes_any(self) -> bool:
        """Return whether `unknown_words` finds none in any text; of characters, `encode` says which are unknown."""
        if self.kind != _PRETRAINED:
            return True
        if self._stored["model"].get("byte_fallback"):
            return {f"<0x{byte:02X}>" for byte in range(256)} <= set(self._tokenizer.get_vocab())
        byte_level = '"ByteLevel"' in json.dumps([self._stored["pre_tokenizer"], self._stored["normalizer"]])
        return byte_level and self.alphabet >= set(_LETTERS)

    def unknown_words(self, words: Collection[str]) -> dict[str, list[str]]:
        """Return the words that a pretrained tokenizer makes the unknown token of, or leaves characters out of.

        Each comes with the characters to blame, or with itself if all of its characters are in some token.
        """
        if self.takes_any:
            return {}
        words, model = list(words), self._stored["model"]
        unknown = model.get("unk_id", self._tokenizer.token_to_id(model.get("unk_token") or ""))
        if unknown is None:  # what is not known is left out
            return {word: blamed for word in words if (blamed := self._blamed(word))}
        encoded = zip(words, self.encode_arrays(words), strict=True)
        return {word: self._blamed(word) or [word] for word, ids in encoded if unknown in ids}

    def _blamed(self, word: str) -> list[str]:
        """Return the characters of a word that are in no token."""
        strange = self._spelled(word) - self.alphabet
        return (sorted(c for c in set(word) if self._spelled(c) & strange) or sorted(strange)) if strange else []

    def _spelled(self, text: str) -> set[str]:
        """Return the characters that tokens are to be found for, but blanks."""
        normalizer, cutter = self._tokenizer.normalizer, self._tokenizer.pre_tokenizer
        text = normalizer.normalize_str(text) if normalizer is not None else text
        pieces = [piece for piece, _ in cutter.pre_tokenize_str(text)] if cutter is not None else [text]
        return set().union(*pieces) - {" ", "▁", _LETTERS[ord(" ")]}

    @cached_property
    def alphabet(self) -> set[str]:
        """Return the characters that the tokens are made of."""
        model, added = self._stored["model"], self._stored["added_tokens"]
        special = {token["content"] for token in added if token["special"]}
        prefix, suffix = model.get("continuing_subword_prefix") or "", model.get("end_of_word_suffix") or ""
        parts = {token.removeprefix(prefix).removesuffix(suffix) for token in {*self._tokenizer.get_vocab()} - special}
        if model["type"] == "BPE":  # where larger tokens are made of the smallest
            parts = {part for part in parts if len(part) == 1}
        return set().union(*parts)

    @cached_property
    def _stored(self) -> dict[str, Any]:
        """Return the content of tokenizer.json."""
        return json.loads(self._tokenizer.to_str())

    def refuse_unknown(self, texts: Iterable[str]) -> None:
        """Raise `UnknownCharacters` if some of the texts would be lost in tokens of a pretrained tokenizer.

        Texts with bytes that are no UTF-8, which Python reads from a command line as surrogates, or with half a
        surrogate pair, are refused whatever the tokenizer.
        """
        texts = list(texts)
        for text in texts:
            if found := SURROGATE.search(text):
                start, code = found.start(), ord(found.group())
                what = "half a surrogate pair, which is no character; take it out"
                if 0xDC80 <= code <= 0xDCFF:
                    what = f"the byte 0x{code - 0xDC00:02x}, which is not UTF-8; write the text in UTF-8"
                raise Unanswerable(f"{text[max(start - _AROUND, 0) : start + _AROUND]!r} has {what}")
        lost = self.unknown_words({word for text in texts for word in text.split(" ")})
        if lost:
            raise UnknownCharacters(
                f"{unknown_characters(sorted(set().union(*lost.values())))}; take them out of the text, or make a new "
                "model with bytes, bpe or another byte-level tokenizer, which take any text"
            )

    # What the tokens are ----------------------------------------------------------------------------------------------

    @cached_property
    def _token_bytes(self) -> list[bytes]:
        """Return the UTF-8 of every token; a blank in front where the tokenizer implies one."""
        model, added = self._stored["model"], {token["content"] for token in self._stored["added_tokens"]}
        byte_level = '"ByteLevel"' in json.dumps(self._stored["decoder"])
        prefix = model.get("continuing_subword_prefix") if model["type"] == "WordPiece" else None
        tokens = [b""] * self.size
        for token, number in self._tokenizer.get_vocab(with_added_tokens=True).items():
            if token in added or self.kind == "characters":
                tokens[number] = token.encode()
            elif byte_level:
                tokens[number] = bytes(_BYTES[letter] for letter in token if letter in _BYTES)
            elif prefix:
                tokens[number] = (token.removeprefix(prefix) if token.startswith(prefix) else " " + token).encode()
            elif re.fullmatch("<0x[0-9A-F]{2}>", token):
                tokens[number] = bytes([int(token[3:5], 16)])
            else:
                tokens[number] = token.replace("▁", " ").encode()
        return tokens

    def _where(self, condition: Callable[[str], bool]) -> np.ndarray:
        return np.array([condition(token.decode(errors="replace")) for token in self._token_bytes], dtype=bool)

    # [size] bool: tokens with a line break, of white space alone, at the end of a sentence.
    newline = cached_property(lambda self: self._where(lambda text: "\n" in text))
    blank = cached_property(lambda self: self._where(lambda text: not text.strip()))
    sentence_end = cached_property(
        lambda self: self._where(lambda text: text.rstrip().rstrip(_CLOSING).endswith(_SENTENCE_ENDS))
    )

    @cached_property
    def word_start(self) -> np.ndarray:
        """Return ``[size]`` bool: tokens in front of which a text may be cut without cutting a word."""
        return self.character_start if self.kind in ("characters", "bytes") else self._where(_starts_word)

    @cached_property
    def character_start(self) -> np.ndarray:
        """Return ``[size]`` bool: tokens in front of which a text may be cut without cutting a character."""
        return np.array([not 0x80 <= token[0] < 0xC0 if token else True for token in self._token_bytes], dtype=bool)

    @cached_property
    def characters(self) -> np.ndarray:
        """Return ``[size]`` int64: how many characters begin in each token; roughly if not byte-level."""
        return np.array([sum(not 0x80 <= byte < 0xC0 for byte in token) for token in self._token_bytes], dtype=np.int64)

    @property
    def delimiters(self) -> tuple[Delimiter, ...]:
        """Return where long sequences are cut, the best first (see `chunk`)."""
        return (
            Delimiter(self.newline, "after"),
            Delimiter(self.sentence_end, "after"),
            Delimiter(self.word_start, "before"),
            Delimiter(self.character_start, "before"),
        )


def tokenizer_of(model: str) -> TextTokenizer | None:
    """Return the tokenizer of a pretrained model, by its folder or name on the hub; ``None`` if its folder has none."""
    folder = Path(model)
    has_none = folder.is_dir() and not any(file for pattern in _TOKENIZER_FILES for file in folder.glob(pattern))
    return None if has_none else TextTokenizer.named(model)


def suggest(texts: Sequence[str]) -> str:
    """Return the kind of tokenizer for texts like these: characters for a small alphabet without words, else bpe.

    Without words are short texts (names, molecules) and those without blanks (proteins).

    >>> suggest(["CCO", "c1ccccc1"])
    'characters'
    >>> suggest(["It was the best of times, it was the worst of times, it was the age of wisdom."])
    'bpe'
    """
    alphabet = set().union(*texts)
    short = sum(map(len, texts)) <= _SHORT_TEXT * len(texts)
    wordless = not any(map(str.isspace, alphabet))
    return "characters" if len(alphabet) <= _SMALL_ALPHABET and (short or wordless) else "bpe"


def unknown_characters(characters: Sequence[str]) -> str:
    """Name characters without a token, for an error."""
    what = "character(s)" if all(len(one) == 1 for one in characters) else "character(s) or word(s)"
    return f"{len(characters)} {what} that the tokenizer does not know: {first_few(characters)}"


def first_few(characters: Sequence[str], counts: Mapping[str, int] | None = None) -> str:
    """Return the first characters with their code points (words as they are), and perhaps how often there are such."""
    names = [f"{one!r} (U+{ord(one):04X})" if len(one) == 1 else repr(one) for one in characters[:_NAMED]]
    if counts is not None:
        names = [f"{name} {counts[one]:,} times" for name, one in zip(names, characters, strict=False)]
    return ", ".join(names) + (", ..." if len(characters) > _NAMED else "")


def _spells(vocabulary: Collection[str]) -> bool:
    """Return whether a vocabulary has a token for each letter, and else only such as stand for no text."""
    letters = [token for token in vocabulary if not _MARK.fullmatch(token)]
    return bool(letters) and all(len(token) == 1 and token.isascii() for token in letters)


def _ids(tokenizer: Tokenizer, texts: Sequence[str]) -> list[np.ndarray]:
    encodings = tokenizer.encode_batch_fast(texts, add_special_tokens=False)
    return [np.array(encoding.ids, dtype=np.uint32) for encoding in encodings]


def _learn_merges(tokenizer: Tokenizer, texts: Iterable[str], vocab_size: int | None) -> None:
    from tokenizers import trainers

    if vocab_size is not None and vocab_size < len(_LETTERS):
        raise ValueError(f"a bpe vocabulary has all {len(_LETTERS)} bytes in it, so {vocab_size} is too small")
    size = vocab_size
    if size is None:
        texts = list(texts)
        size = min(_LARGEST_BPE, len(_LETTERS) + sum(map(len, texts)) // _CHARACTERS_PER_MERGE)
    trainer = trainers.BpeTrainer(
        vocab_size=size, min_frequency=2, initial_alphabet=_LETTERS, special_tokens=[], show_progress=False
    )
    tokenizer.train_from_iterator(texts, trainer)
    learned = tokenizer.get_vocab_size()
    if vocab_size is not None and learned < vocab_size:
        raise ValueError(
            f"the data supports a bpe vocabulary of {learned} tokens, not {vocab_size}: "
            f"ask for {learned} or fewer, or give more data"
        )


def _chat(settings: dict[str, Any]) -> dict[str, str]:
    """Return what the settings of a Hugging Face tokenizer say of chats; nothing without a template."""
    template = settings.get(_TEMPLATE)
    if isinstance(template, list):  # several of them, by name
        template = {one["name"]: one["template"] for one in template}
    if isinstance(template, dict):
        template = template.get("default")
    if not template:
        return {}
    written = {name: settings[name] for name in _SPECIAL if settings.get(name)}
    special = {name: token["content"] if isinstance(token, dict) else str(token) for name, token in written.items()}
    return {_TEMPLATE: template, **special}


def _blocks(text: str) -> Iterator[str]:
    """Yield a long text in pieces.

    They are cut in front of a blank behind a word, where no token of bpe reaches across; in the middle of a word only
    if it fills a block.
    """
    start = 0
    while len(text) - start > _BLOCK:
        last_blank = text.rfind(" ", start, start + _BLOCK)
        block = text[start:last_blank].rstrip() if last_blank > start else ""
        block = block or text[start : start + _BLOCK]
        yield block
        start += len(block)
    yield text[start:]


def _starts_word(text: str) -> bool:
    """Return whether a token begins with something that cannot continue a word: no letter, digit, mark, joiner."""
    first = text[:1] or " "
    return not (first.isalnum() or first == "\ufffd" or unicodedata.category(first) in ("Mn", "Mc", "Me", "Cf"))
