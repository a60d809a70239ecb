import json

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from flexmdm import FlexMDMConfig, FlexMDMModel
from flexmdm.tasks.sft.pipeline import SFTPipeline
from flexmdm.tasks.sft.task import SFTTask

PAIRS = [
    ("What is 12 + 30?", "42"), ("Où est le café?", "là-bas, à côté"), ("漢字 and 😀?", "!"),
    ("Say it.", "it\nand more"), ("one two three", "four five six seven"), ("tab\tand space ", " é"),
]  # fmt: skip
TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


@pytest.fixture
def pairs(tmp_path, monkeypatch):
    """A small file of pairs, and a cache of its own."""
    monkeypatch.setenv("FLEXMDM_CACHE", str(tmp_path / "cache"))
    file = tmp_path / "pairs.jsonl"
    rows = [{"question": f"{number} {q}", "answer": a} for number in range(30) for q, a in PAIRS]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


@pytest.fixture
def make_task(pairs):
    def make(model="flexmdm", tokenizer="characters", **settings) -> SFTTask:
        settings = {"max_length": 96, "held_out": 0.2, **settings}
        return SFTTask((str(pairs),), model, tokenizer=tokenizer, **settings).settled()

    return make


@pytest.fixture
def make_pipeline(make_task):
    """An untrained pipeline on the pairs, with some more tokens than the task has."""

    def make(model="flexmdm", tokenizer="characters", expected_gap=3.0, more=0, **settings) -> SFTPipeline:
        task = make_task(model, tokenizer, **settings)
        config = FlexMDMConfig(
            vocab_size=task.vocab_size + more, hidden_size=16, num_layers=1, num_heads=2, condition_size=16,
            dropout=0.0, insertions=model == "flexmdm", expected_gap=expected_gap, task=task.to_dict(),
        )  # fmt: skip
        return SFTPipeline(task, FlexMDMModel(config).eval())

    return make


@pytest.fixture
def chat_tokenizer(tmp_path):
    """The folder of a byte-level tokenizer of Hugging Face with a chat template."""

    def save(name="chat", template=TEMPLATE):
        letters = sorted(pre_tokenizers.ByteLevel.alphabet())
        tokenizer = Tokenizer(models.BPE(vocab={letter: number for number, letter in enumerate(letters)}, merges=[]))
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = decoders.ByteLevel()
        fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>")
        fast.add_special_tokens({"additional_special_tokens": ["<|user|>", "<|assistant|>", "<|system|>", "<|end|>"]})
        fast.chat_template = template
        fast.save_pretrained(tmp_path / name)
        return tmp_path / name

    return save
