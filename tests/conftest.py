"""Fixtures of many tests, above all runs that take a second: a maze of 7 x 7 cells and a network of one layer.

One thread per test process: the tensors are small, and the processes of a parallel run must not fight for cores.
"""

import gc
import io
import json
import os
from dataclasses import replace
from html.parser import HTMLParser

import pytest
import torch
from rich.console import Console

torch.set_num_threads(1)
# Some virtual machines announce AMX and then kill the process that uses it, as products in bfloat16 would.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")

VOID = {"meta", "link", "input", "br", "img"}
SECTIONS = ("growth", "success", "plans", "lengths", "loss", "facts")


class Reader(HTMLParser):
    """Checks that tags match, and keeps what a page refers to and says."""

    def __init__(self, text):
        super().__init__()
        self.open, self.ids, self.references, self.links, self.pictures, self.words = [], [], [], [], [], []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attributes):
        values = dict(attributes)
        if tag not in VOID:
            self.open.append(tag)
        if "id" in values:
            self.ids.append(values["id"])
        for name in ("src", "href", "xlink:href", "data", "poster", "srcset", "action"):
            if name in values:
                (self.links if tag == "a" else self.references).append(values[name])
        if tag == "svg":
            self.pictures.append(values)

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)
        if tag not in VOID:
            self.handle_endtag(tag)

    def handle_endtag(self, tag):
        assert self.open and self.open.pop() == tag, f"</{tag}> closes nothing"

    def handle_data(self, data):
        self.words.append(data)


def _check(text):
    """Well-formed, self-contained, with all its sections and a text for every picture."""
    page = Reader(text)
    assert page.open == []
    assert len(page.ids) == len(set(page.ids)) and set(SECTIONS) <= set(page.ids)
    inside = {f"#{name}" for name in page.ids}
    assert all(reference in inside or reference.startswith("data:") for reference in page.references), page.references
    assert all(link.startswith("https://arxiv.org/") for link in page.links)
    assert "@import" not in text and "url(" not in text.replace("url(#", "") and "<img" not in text
    assert all(picture.get("aria-label") or picture.get("aria-hidden") == "true" for picture in page.pictures)
    return page


@pytest.fixture(scope="session")
def check_page():
    return _check


@pytest.fixture(scope="session")
def tiny():
    """A configuration with some of its recipe (or its dropout, or its task) changed."""

    from flexmdm.runs.config import RunConfig
    from flexmdm.tasks.maze.task import MazeTask
    from flexmdm.training.models import quiet_transformers
    from flexmdm.training.recipe import Network, Recipe

    quiet_transformers()
    gc.freeze()  # the Trainer collects garbage at every start: half a second each if it looks through the libraries too
    maze = MazeTask(size=7, pairs=22, paths_per_pair=2, subgoals=(2, 4), held_out=0.1)
    network = Network(hidden=16, layers=1, heads=2, condition=16, dropout=0.1)
    usual = Recipe(
        steps=6, batch_size=8, threads=1, learning_rate=1e-2, warmup=1, schedule="constant", ema=0.9,
        eval_every=100, eval_size=16, save_every=2, keep=9, log_every=1,
    )  # fmt: skip

    def make(task=maze, dropout=network.dropout, **recipe):
        return RunConfig(task.to_dict(), replace(network, dropout=dropout), replace(usual, **recipe))

    return make


@pytest.fixture
def trainer(tiny, tmp_path):
    """A trainer in a folder of its own."""
    from flexmdm.runs.building import build
    from flexmdm.training.trainer import FlexMDMTrainer

    def make(*callbacks, folder=tmp_path / "run", **changes):
        config = tiny(**changes)
        task, model = build(config)
        return FlexMDMTrainer(model, config.recipe, task.train, task.validation, folder, callbacks, device="cpu")

    return make


@pytest.fixture
def console():
    """A wide console that remembers what was said: ``console.file.getvalue()``."""
    return Console(file=io.StringIO(), width=1000)


@pytest.fixture
def at_step():
    """A callback that does something once so many steps are done, or (``event``) before."""
    from transformers import TrainerCallback

    def make(step, action, event="on_step_end"):
        class Once(TrainerCallback):
            pass

        def called(self, args, state, control, **_):
            if state.global_step == step:
                action()

        setattr(Once, event, called)
        return Once()

    return make


@pytest.fixture(scope="session")
def weights():
    """The weights of a model, as they are now."""
    return lambda model: {name: p.detach().clone() for name, p in model.named_parameters()}


@pytest.fixture(scope="session")
def same():
    """Return a function that tells whether nested states are equal to the last bit."""

    def equal(a, b):
        if isinstance(a, torch.Tensor):
            return isinstance(b, torch.Tensor) and a.dtype == b.dtype and torch.equal(a, b)
        if isinstance(a, dict):
            return isinstance(b, dict) and a.keys() == b.keys() and all(equal(a[k], b[k]) for k in a)
        if isinstance(a, list | tuple):
            return len(a) == len(b) and all(map(equal, a, b))
        return a == b

    return equal


LETTERS = [*range(33, 127), *range(161, 173), *range(174, 256)]  # bytes that byte-level tokenizers write as themselves
SPECIAL = ["<|beginoftext|>", "<|endoftext|>", "<|mask|>"]
DREAM = {
    "model_type": "Dream", "architectures": ["DreamModel"], "auto_map": {"AutoModel": "modeling_dream.DreamModel"},
    "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 3, "num_attention_heads": 4,
    "num_key_value_heads": 2, "vocab_size": 264, "max_position_embeddings": 128, "rope_theta": 1e6,
    "rms_norm_eps": 1e-6, "tie_word_embeddings": False, "torch_dtype": "bfloat16", "rope_scaling": None,
    "bos_token_id": 256, "pad_token_id": 257, "mask_token_id": 258,
}  # fmt: skip


@pytest.fixture
def published(tmp_path):
    """A FlexMDM in the layout of the public 7B one, with random weights: the backbone in two files, and the extras."""
    from safetensors.torch import save_file

    hidden, inner, width, size = 32, 48, 32 // 4, DREAM["vocab_size"]
    generator = torch.Generator().manual_seed(0)

    def drawn(*shape, around=0.0):
        scale = 0.3 if len(shape) == 1 else 2 * shape[-1] ** -0.5
        return (around + scale * torch.randn(shape, generator=generator)).bfloat16()

    def linear(name, rows, columns, bias=True):
        return {f"{name}.weight": drawn(rows, columns)} | ({f"{name}.bias": drawn(rows)} if bias else {})

    parts = [{"model.embed_tokens.weight": drawn(size, hidden)}, {"lm_head.weight": drawn(size, hidden)}]
    parts[1] |= {"model.norm.weight": drawn(hidden, around=1.0)}
    extras = linear("time_mlp.0", 4 * hidden, hidden) | linear("time_mlp.2", hidden, 4 * hidden)
    extras |= {"insertion_head.norm.weight": drawn(hidden, around=1.0), "insertion_head.norm.bias": drawn(hidden)}
    extras |= linear("insertion_head.proj1", hidden, hidden) | linear("insertion_head.proj2", 1, hidden)
    for number in range(DREAM["num_hidden_layers"]):
        layer = f"model.layers.{number}"
        for name, rows, bias in (("q", hidden, True), ("k", 2 * width, True), ("v", 2 * width, True)):
            parts[0] |= linear(f"{layer}.self_attn.{name}_proj", rows, hidden, bias)
        parts[0] |= linear(f"{layer}.self_attn.o_proj", hidden, hidden, bias=False)
        parts[0] |= linear(f"{layer}.mlp.gate_proj", inner, hidden, bias=False)
        parts[1] |= linear(f"{layer}.mlp.up_proj", inner, hidden, bias=False)
        parts[1] |= linear(f"{layer}.mlp.down_proj", hidden, inner, bias=False)
        for norm in ("input_layernorm", "post_attention_layernorm"):
            parts[1][f"{layer}.{norm}.weight"] = drawn(hidden, around=1.0)
        extras |= linear(f"temb_mods.{number}", 2 * hidden, hidden)

    folder = tmp_path / "published"
    folder.mkdir()
    names = [f"model-0000{number}-of-00002.safetensors" for number in (1, 2)]
    for name, part in zip(names, parts, strict=True):
        save_file(part, folder / name, metadata={"format": "pt"})
    index = {weight: name for name, part in zip(names, parts, strict=True) for weight in part}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": index}))
    torch.save(extras, folder / "flexmdm_extras.pt")
    (folder / "config.json").write_text(json.dumps(DREAM))

    others = iter(range(256, 512))  # byte-level tokenizers write all other bytes as letters from here on
    letters = {chr(byte if byte in LETTERS else next(others)): byte for byte in range(256)}
    (folder / "vocab.json").write_text(json.dumps(letters))
    (folder / "merges.txt").write_text("#version: 0.2\n")
    added = {str(256 + number): {"content": token, "special": True} for number, token in enumerate(SPECIAL)}
    plain = dict.fromkeys(("lstrip", "rstrip", "normalized", "single_word"), False)
    settings = {
        "added_tokens_decoder": {number: token | plain for number, token in added.items()},
        "tokenizer_class": "DreamTokenizer",
        "auto_map": {"AutoTokenizer": ["tokenization_dream.DreamTokenizer", None]},
        **dict(zip(("bos_token", "pad_token", "mask_token"), SPECIAL, strict=True)),
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return folder
