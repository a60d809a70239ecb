"""LLaDA's checkpoints in the Llama of transformers, against a plain implementation of what LLaDA computes."""

import json
import sys

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file

from flexmdm.backbones import llada
from flexmdm.backbones.retrofit import load_base, retrofit
from flexmdm.backbones.retrofit_network import Retrofit
from flexmdm.training.models import quiet_transformers

quiet_transformers()
SIZE = {
    "d_model": 24, "n_layers": 3, "n_heads": 4, "n_kv_heads": 2, "mlp_hidden_size": 40, "vocab_size": 19,
    "embedding_size": 19, "max_sequence_length": 64, "mask_token_id": 17, "eos_token_id": 3, "pad_token_id": 3,
}  # fmt: skip
CONFIG = llada.SHAPE_8B | SIZE
MASK = CONFIG["mask_token_id"]


def random_weights(config, seed=0):
    """Weights under LLaDA's names."""
    generator = torch.Generator().manual_seed(seed)
    d, f, v = config["d_model"], config["mlp_hidden_size"], config["vocab_size"]
    kv = d // config["n_heads"] * config["n_kv_heads"]
    shapes = {"wte": (v, d), "ln_f": (d,), "ff_out": (v, d)}
    for n in range(config["n_layers"]):
        inside = {"q_proj": (d, d), "k_proj": (kv, d), "v_proj": (kv, d), "attn_out": (d, d), "attn_norm": (d,)}
        inside |= {"ff_proj": (f, d), "up_proj": (f, d), "ff_out": (d, f), "ff_norm": (d,)}
        shapes |= {f"blocks.{n}.{name}": shape for name, shape in inside.items()}
    return {
        f"model.transformer.{name}.weight": torch.randn(shape, generator=generator) * (0.3 if len(shape) > 1 else 1.0)
        for name, shape in shapes.items()
    }


def written(folder, config=CONFIG, weights=None, shards=1):
    weights = random_weights(config) if weights is None else weights
    names = sorted(weights)
    files = {f"model-{i + 1:05}-of-{shards:05}.safetensors": names[i::shards] for i in range(shards)}
    if shards == 1:
        files = {"model.safetensors": names}
    for file, inside in files.items():
        save_file({name: weights[name] for name in inside}, folder / file, metadata={"format": "pt"})
    if shards > 1:
        index = {"metadata": {}, "weight_map": {name: file for file, inside in files.items() for name in inside}}
        (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def plain_llada(weights, config, tokens):
    """One sequence ``[T]`` -> logits ``[T, V]``, by the book: rotary angles, bidirectional softmax, SwiGLU."""

    def weight(name):
        return weights[f"model.transformer.{name}.weight"].double()

    def norm(x, name):
        return x / (x.pow(2).mean(-1, keepdim=True) + config["rms_norm_eps"]).sqrt() * weight(name)

    def rotated(x):  # [T, H, E]
        half = x.shape[-1] // 2
        angle = torch.arange(len(x), dtype=torch.float64)[:, None, None] * config["rope_theta"] ** (
            -torch.arange(half, dtype=torch.float64) / half
        )
        a, b = x[..., :half], x[..., half:]
        return torch.cat([a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()], -1)

    width = config["d_model"] // config["n_heads"]
    shared = config["n_heads"] // config["n_kv_heads"]
    x = weight("wte")[tokens]
    for n in range(config["n_layers"]):
        y = norm(x, f"blocks.{n}.attn_norm")
        q, k, v = (y @ weight(f"blocks.{n}.{name}_proj").T for name in "qkv")
        q, k, v = (z.unflatten(1, (-1, width)) for z in (q, k, v))
        k, v = (z.repeat_interleave(shared, 1) for z in (k, v))
        score = torch.einsum("ihe,jhe->hij", rotated(q), rotated(k)) / width**0.5
        mixed = torch.einsum("hij,jhe->ihe", score.softmax(-1), v).flatten(1)
        x = x + mixed @ weight(f"blocks.{n}.attn_out").T
        y = norm(x, f"blocks.{n}.ff_norm")
        gate, up = (y @ weight(f"blocks.{n}.{name}_proj").T for name in ("ff", "up"))
        x = x + (F.silu(gate) * up) @ weight(f"blocks.{n}.ff_out").T
    return norm(x, "ln_f") @ weight("ff_out").T


@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_logits_are_those_of_the_architecture_and_no_key_is_missing_or_left_over(tmp_path, shards, dtype):
    weights = random_weights(CONFIG)
    model = retrofit(written(tmp_path, weights=weights, shards=shards), insertions=False, dtype=dtype).eval()
    sequences = [[1, MASK, 4, MASK], [], [MASK], [2, 5, MASK, 9, MASK, 11, 12]]
    tokens, lengths = torch.tensor(sum(sequences, [])), torch.tensor([len(s) for s in sequences])
    logits = model(tokens, lengths).logits
    expected = [plain_llada(weights, CONFIG, torch.tensor(s))[torch.tensor(s) == MASK] for s in sequences if s]
    tolerance = 1e-5 if dtype == torch.float32 else 1e-6  # rotary angles are computed in single precision
    torch.testing.assert_close(logits.double(), torch.cat(expected), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("shares", [{"n_kv_heads": None, "multi_query_attention": True}, {"n_kv_heads": 1}])
def test_what_a_configuration_leaves_to_the_default_is_as_in_llada(tmp_path, shares):
    """A feed-forward layer of 4 times the width, and one head of keys and values under multi-query attention."""
    weights = random_weights(CONFIG | {"mlp_hidden_size": 4 * CONFIG["d_model"], "n_kv_heads": 1})
    stored = CONFIG | {"mlp_hidden_size": None, "mlp_ratio": 4} | shares
    model = retrofit(written(tmp_path, stored, weights), insertions=False).eval()
    tokens = torch.tensor([2, 5, MASK, 9, MASK, 11, 12])
    expected = plain_llada(weights, CONFIG | {"n_kv_heads": 1}, tokens)[tokens == MASK]
    torch.testing.assert_close(model(tokens, torch.tensor([7])).logits.double(), expected, rtol=1e-5, atol=1e-5)


def test_two_counts_of_heads_that_contradict_each_other_are_refused():
    with pytest.raises(ValueError, match="n_kv_heads = 2 and multi_query_attention = True, which means 1"):
        llada.llama_config(CONFIG | {"multi_query_attention": True})
    assert llada.llama_config(CONFIG | {"n_kv_heads": None}).num_key_value_heads == CONFIG["n_heads"]


def test_exported_and_loaded_again_nothing_changes(tmp_path):
    (tmp_path / "a").mkdir()
    first = written(tmp_path / "a")
    model, encoder = retrofit(first, insertions=False), load_base(first).encoder
    llada.export(model.network, encoder, model.config.mask_id, tmp_path / "b", pad_id=CONFIG["pad_token_id"])
    before, after = (load_file(tmp_path / name / "model.safetensors") for name in "ab")
    assert before.keys() == after.keys() and all(torch.equal(before[name], after[name]) for name in before)
    stored = json.loads((tmp_path / "b" / "config.json").read_text())
    assert {name: stored[name] for name in CONFIG} == CONFIG


def test_weights_keep_the_precision_they_are_stored_in_unless_told_otherwise(tmp_path):
    folder = written(tmp_path, weights={name: w.bfloat16() for name, w in random_weights(CONFIG).items()})
    assert load_base(folder).parts.norm.weight.dtype == torch.bfloat16
    assert load_base(folder, dtype=torch.float32).parts.norm.weight.dtype == torch.float32


def test_the_8b_shape_has_eight_billion_parameters():
    from transformers import AutoModelForCausalLM

    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(llada.llama_config(llada.SHAPE_8B))
    assert sum(p.numel() for p in model.parameters()) == 8_015_581_184


# What is wrong, and what to do ----------------------------------------------------------------------------------------


def test_a_partial_checkpoint_is_refused(tmp_path):
    weights = random_weights(CONFIG)
    del weights["model.transformer.blocks.1.ff_proj.weight"]
    with pytest.raises(ValueError, match=r"not a whole checkpoint.*1 missing \(model.layers.1.mlp.gate_proj"):
        load_base(written(tmp_path, weights=weights))


def test_another_checkpoint_is_refused(tmp_path):
    weights = random_weights(CONFIG) | {"model.transformer.blocks.0.k_norm.weight": torch.ones(24)}
    with pytest.raises(ValueError, match=r"not a whole checkpoint.*1 unexpected"):
        load_base(written(tmp_path, weights=weights))


def test_weights_of_another_shape_are_refused(tmp_path):
    weights = random_weights(CONFIG | {"d_model": 28})
    with pytest.raises(ValueError, match="cannot be loaded|not a whole checkpoint"):
        load_base(written(tmp_path, weights=weights))


def test_a_missing_shard_is_named(tmp_path):
    folder = written(tmp_path, shards=2)
    (folder / "model-00002-of-00002.safetensors").unlink()
    with pytest.raises(ValueError, match="model-00002-of-00002"):
        load_base(folder)


def test_a_model_without_a_mask_token_is_refused_unless_it_is_told(tmp_path):
    folder = written(tmp_path, config={**CONFIG, "mask_token_id": None})
    with pytest.raises(ValueError, match="which token is its mask.*--mask-id"):
        load_base(folder)
    assert load_base(folder, mask_id=5).mask_id == 5
    with pytest.raises(ValueError, match="outside its vocabulary of 19"):
        load_base(folder, mask_id=19)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"block_type": "sequential"}, "block_type = 'sequential'"),
        ({"include_qkv_bias": True}, "has include_qkv_bias"),
        ({"d_model": None}, "cannot be loaded|has no d_model|d_model"),
    ],
)
def test_a_llada_of_another_build_is_refused(tmp_path, change, message):
    config = {key: value for key, value in (CONFIG | change).items() if value is not None}
    with pytest.raises(ValueError, match=message):
        load_base(written(tmp_path, config=config, weights=random_weights(CONFIG)))


def test_no_model_and_too_little_memory_are_said(tmp_path, monkeypatch):
    with pytest.raises(ValueError, match="there is no pretrained model"):
        load_base(tmp_path / "nowhere")
    folder = written(tmp_path)
    monkeypatch.setattr("flexmdm.backbones.bases.free_memory", lambda *_: 1000)
    with pytest.raises(
        ValueError, match=r"need about .* GB and .* GB are free where they are to be loaded: load them in bfloat16"
    ):
        load_base(folder)


def test_damaged_weights_are_said(tmp_path):
    folder = written(tmp_path)
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    with pytest.raises(ValueError, match="cannot be loaded.*fetch it again"):
        load_base(folder)


def test_tied_embeddings_are_untied_so_that_adapters_on_the_head_change_the_head_alone(tmp_path):
    weights = random_weights(CONFIG)
    del weights["model.transformer.ff_out.weight"]
    parts = load_base(written(tmp_path, config={**CONFIG, "weight_tying": True}, weights=weights)).parts
    assert torch.equal(parts.head.weight, parts.embedding.weight) and parts.head.weight is not parts.embedding.weight
    model = retrofit(tmp_path, lora={"rank": 2, "alpha": 2, "dropout": 0.0})
    assert not model.config.encoder_config.tie_word_embeddings
    model.save_pretrained(tmp_path / "saved")


def test_four_bits_without_a_gpu_or_their_library_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ValueError, match="4 bits need a GPU"):
        load_base(written(tmp_path), four_bit=True)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setitem(sys.modules, "bitsandbytes", None)
    with pytest.raises(ValueError, match="pip install bitsandbytes"):
        load_base(written(tmp_path), four_bit=True)


def test_the_pretrained_part_is_a_retrofit_without_additions(tmp_path):
    network = retrofit(written(tmp_path), insertions=False).network
    assert isinstance(network, Retrofit) and network.added == {}
