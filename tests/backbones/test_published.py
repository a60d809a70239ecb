"""FlexMDM checkpoints in the layout that the group of the paper publishes, against a forward pass written from it."""

import json
import math
import os
import pickle
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file

from flexmdm import FlexMDMConfig, FlexMDMModel, Prompt, generate
from flexmdm.backbones.retrofit import RetrofitModel, load_base, retrofit
from flexmdm.canvas import Canvas
from flexmdm.sequences import Ragged

BOS, SEPARATOR, MASK, VOCAB = 256, 257, 258, 264
SHARED = Path(os.environ.get("FLEXMDM_CHECKPOINTS", "no such folder"))  # with a checkpoint and its outputs
EXTRAS = "flexmdm_extras.pt"


def weights_of(folder):
    files = sorted(folder.glob("model-*.safetensors"))
    stored = {name: value for file in files for name, value in load_file(file).items()}
    stored |= torch.load(folder / EXTRAS, weights_only=True)
    return {name: value.float() for name, value in stored.items()}


def reference(folder, tokens, t):
    """Return the logits of each entry and the expected insertions behind it, of one sequence at time t."""
    config, w = json.loads((folder / "config.json").read_text()), weights_of(folder)
    heads, groups, hidden = (
        config[f"{name}"] for name in ("num_attention_heads", "num_key_value_heads", "hidden_size")
    )
    width, n = hidden // heads, len(tokens)

    def linear(x, name):
        return F.linear(x, w[f"{name}.weight"], w.get(f"{name}.bias"))

    def norm(x, name):
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + config["rms_norm_eps"]) * w[f"{name}.weight"]

    def turned(x):  # [n, H, width]
        frequency = config["rope_theta"] ** (-torch.arange(0, width, 2) / width)
        angle = (torch.arange(n)[:, None] * frequency).repeat(1, 2)[:, None]
        left, right = x.chunk(2, -1)
        return x * angle.cos() + torch.cat([-right, left], -1) * angle.sin()

    half = hidden // 2
    angle = 1000 * torch.tensor(t, dtype=torch.float32) * torch.exp(-math.log(10_000) * torch.arange(half) / half)
    time = linear(F.silu(linear(torch.cat([angle.cos(), angle.sin()]), "time_mlp.0")), "time_mlp.2")
    x = w["model.embed_tokens.weight"][torch.tensor(tokens)]
    for number in range(config["num_hidden_layers"]):
        layer, (scale, shift) = f"model.layers.{number}", linear(time, f"temb_mods.{number}").chunk(2)
        y = (1 + scale) * norm(x, f"{layer}.input_layernorm") + shift
        q, k, v = (linear(y, f"{layer}.self_attn.{name}_proj").view(n, -1, width) for name in "qkv")
        q, k, v = (z.repeat_interleave(heads // z.shape[1], 1).transpose(0, 1) for z in (turned(q), turned(k), v))
        mixed = ((q @ k.transpose(1, 2)) / width**0.5).softmax(-1) @ v
        x = x + linear(mixed.transpose(0, 1).flatten(1), f"{layer}.self_attn.o_proj")
        y = (1 + scale) * norm(x, f"{layer}.post_attention_layernorm") + shift
        x = x + linear(
            F.silu(linear(y, f"{layer}.mlp.gate_proj")) * linear(y, f"{layer}.mlp.up_proj"), f"{layer}.mlp.down_proj"
        )
    x = norm(x, "model.norm")
    logits = linear(x, "lm_head").roll(1, 0)  # row i speaks of entry i + 1
    head = "insertion_head"
    y = F.layer_norm(x, (hidden,), w[f"{head}.norm.weight"], w[f"{head}.norm.bias"])
    return logits, linear(F.gelu(linear(y, f"{head}.proj1")), f"{head}.proj2").squeeze(1).clamp(-15, 15).exp()


def state(prompt, answer):
    """Return an answer behind its prompt, and the gaps that are open: from the separator on."""
    tokens = [BOS, *prompt, SEPARATOR, *answer]
    return tokens, [False] * (len(prompt) + 2) + [True] * (len(answer) + 1)


STATES = [state([5, 6, 7], [MASK, 9, MASK, MASK]), state([], [MASK]), state([40] * 9, []), state([1, 2], [3, 4, MASK])]
TIMES = [0.08, 0.5, 0.93, 0.0]


def canvas_of(states, mask_id=MASK):
    tokens, gaps = zip(*states, strict=True)
    return Canvas(Ragged.from_lists(tokens), mask_id, open_gaps=Ragged.from_lists(gaps, dtype=torch.bool))


def alpha_of(times):
    return 1 - (1 - torch.tensor(times, dtype=torch.float64)) ** 1.7


def predictions(model, states=STATES, times=TIMES):
    prediction = model.denoiser()(canvas_of(states), alpha_of(times))
    return prediction.log_probs, prediction.insertions.values


def test_predictions_are_those_of_the_layout_alone_and_with_batch_mates(published):
    model = FlexMDMModel.from_pretrained(published, dtype=torch.float32)
    log_probs, insertions = [], []
    for (tokens, gaps), t in zip(STATES, TIMES, strict=True):
        logits, behind = reference(published, tokens, t)
        masks = [entry for entry, token in enumerate(tokens) if token == MASK]
        logits = logits[masks].index_fill(1, torch.tensor([MASK]), -torch.inf)  # a mask is never revealed as a mask
        log_probs.append(logits.log_softmax(1))
        insertions.append(torch.cat([torch.zeros(1), behind]) * torch.tensor(gaps))
        alone = predictions(model, [(tokens, gaps)], [t])
        torch.testing.assert_close(alone[0], log_probs[-1], rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(alone[1], insertions[-1], rtol=1e-5, atol=1e-5)
    together = predictions(model)
    torch.testing.assert_close(together[0], torch.cat(log_probs), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(together[1], torch.cat(insertions), rtol=1e-5, atol=1e-5)


@pytest.mark.skipif(not (SHARED / "tiny.outputs.json").is_file(), reason="no checkpoint of its own writer at hand")
def test_predictions_are_those_of_the_writer_of_a_checkpoint():
    model = FlexMDMModel.from_pretrained(SHARED / "tiny", dtype=torch.float32)
    outputs = json.loads((SHARED / "tiny.outputs.json").read_text())
    mask = outputs["mask_id"]
    for one in outputs["states"]:
        size, given = len(one["tokens"]), one["prompt_length"]
        canvas = canvas_of([(one["tokens"], [False] * given + [True] * (size + 1 - given))], mask)
        prediction = model.denoiser()(canvas, torch.tensor([one["alpha"]], dtype=torch.float64))
        logits = torch.tensor(one["logits_at_masks"]).index_fill(1, torch.tensor([mask]), -torch.inf)
        torch.testing.assert_close(prediction.log_probs, logits.log_softmax(1), rtol=0, atol=1e-5)
        torch.testing.assert_close(prediction.insertions.values, torch.tensor(one["insertions"]), rtol=0, atol=1e-5)


def test_the_schedules_are_those_of_the_training(published):
    model = FlexMDMModel.from_pretrained(published)
    assert [float(s.value(0.25)) for s in (model.interpolant.insertion, model.interpolant.unmasking)] == pytest.approx(
        [1 - 0.75**1.7, 1 - 0.75**2.89]
    )


def test_a_checkpoint_generates_behind_its_separator_with_any_schedule(published):
    model = FlexMDMModel.from_pretrained(published, dtype=torch.float32)
    prompt = Prompt.prefix([BOS, 1, 2, SEPARATOR])
    for interpolant in (None, model.interpolant.changed("power:2.9", None)):
        out = model.generate(4, prompts=[prompt], steps=8, max_length=20, seed=0, interpolant=interpolant)
        assert all(tokens[:4] == [BOS, 1, 2, SEPARATOR] and MASK not in tokens for tokens in out.sequences)
        assert max(map(len, out.sequences)) > 4


def test_nothing_can_be_inserted_in_front_of_the_first_token(published):
    model = FlexMDMModel.from_pretrained(published)
    with pytest.raises(ValueError, match="begin every sequence with a given token"):
        generate(model.denoiser(), num_samples=1)


def test_saved_it_loads_again_without_its_extras_and_is_the_same(published, tmp_path, same):
    model = FlexMDMModel.from_pretrained(published)
    model.save_pretrained(tmp_path / "converted")
    kept = {file.name for file in (tmp_path / "converted").iterdir()}
    assert "model.safetensors" in kept and not any(name.endswith((".pt", ".py", ".bin")) for name in kept)
    again = FlexMDMModel.from_pretrained(tmp_path / "converted")
    assert isinstance(again, RetrofitModel) and again.dtype == torch.bfloat16 and again.config.task == model.config.task
    assert same(again.state_dict(), model.state_dict())
    torch.testing.assert_close(predictions(again), predictions(model))


def test_adapters_on_it_change_nothing_before_training(published, tmp_path):
    whole = FlexMDMModel.from_pretrained(published, dtype=torch.float32)
    whole.save_pretrained(tmp_path / "run")
    adapted = retrofit(tmp_path / "run", lora={"rank": 2, "alpha": 4, "dropout": 0.0}, dtype=torch.float32)
    torch.testing.assert_close(predictions(adapted), predictions(whole))
    adapted.save_pretrained(tmp_path / "adapters")
    again = FlexMDMModel.from_pretrained(tmp_path / "adapters")
    torch.testing.assert_close(predictions(again), predictions(adapted))


def test_gradients_reach_all_of_its_weights(published):
    model = FlexMDMModel.from_pretrained(published, dtype=torch.float32).train()
    canvas = canvas_of(STATES)
    out = model(canvas.tokens.values, canvas.lengths, canvas.given.values, canvas.open_gaps.values, alpha_of(TIMES))
    (out.logits.square().mean() + out.insertions.log1p().sum()).backward()
    assert [name for name, p in model.named_parameters() if p.grad is None or not p.grad.any()] == []


# Refusals -------------------------------------------------------------------------------------------------------------


class Code:
    """An object that would run a program when it is unpickled."""

    def __init__(self, file):
        self.file = file

    def __reduce__(self):
        return (os.system, (f"touch {self.file}",))


def extras_with(change):
    def spoil(folder):
        extras = torch.load(folder / EXTRAS, weights_only=True)
        change(extras)
        torch.save(extras, folder / EXTRAS)

    return spoil


def config_with(**changes):
    def spoil(folder):
        (folder / "config.json").write_text(json.dumps(json.loads((folder / "config.json").read_text()) | changes))

    return spoil


SPOILED = {
    "no_extras": (lambda folder: (folder / EXTRAS).unlink(), "no flexmdm_extras.pt"),
    "partial_extras": (extras_with(lambda x: x.pop("temb_mods.1.bias")), r"1 are missing \(temb_mods.1.bias\)"),
    "other_extras": (extras_with(lambda x: x.update(mystery=torch.ones(2))), r"1 are unknown \(mystery\)"),
    "another_shape": (
        extras_with(lambda x: x.update({"time_mlp.0.bias": torch.ones(3)})),
        r"1 are of another shape \(time_mlp.0.bias\)",
    ),
    "backbone_in_extras": (
        extras_with(lambda x: x.update({"lm_head.weight": torch.ones(VOCAB, 32)})),
        r"the backbone has too \(lm_head.weight\)",
    ),
    "list_of_extras": (lambda folder: torch.save([torch.ones(2)], folder / EXTRAS), "no table of tensors"),
    "nested_extras": (lambda folder: torch.save({"state": {}}, folder / EXTRAS), "no table of tensors"),
    "cut_off_extras": (
        lambda folder: (folder / EXTRAS).write_bytes((folder / EXTRAS).read_bytes()[:500]),
        "is damaged",
    ),
    "empty_extras": (lambda folder: (folder / EXTRAS).write_bytes(b""), "is damaged"),
    "cut_off_weights": (
        lambda folder: (folder / "model-00002-of-00002.safetensors").write_bytes(b"\0" * 64),
        "weights in .* are damaged",
    ),
    "partial_weights": (lambda folder: (folder / "model-00002-of-00002.safetensors").unlink(), "are missing"),
    "more_layers": (config_with(num_hidden_layers=4), "are missing"),
    "another_vocabulary": (config_with(vocab_size=300), "of another shape"),
    "no_separator": (config_with(pad_token_id=None), "pad_token_id .* must be a token, and is None"),
    "mask_outside": (config_with(mask_token_id=264), "mask_token_id .* must be a token, and is 264"),
}


@pytest.mark.parametrize("how", SPOILED)
def test_a_spoiled_checkpoint_is_refused_in_a_sentence(published, how):
    spoil, why = SPOILED[how]
    spoil(published)
    with pytest.raises(ValueError, match=why):
        FlexMDMModel.from_pretrained(published)


@pytest.mark.parametrize("save", [torch.save, lambda what, file: file.write_bytes(pickle.dumps(what, protocol=2))])
def test_code_in_the_extras_is_not_run(published, tmp_path, save):
    save({"time_mlp.0.weight": Code(tmp_path / "ran")}, published / EXTRAS)
    with pytest.raises(ValueError, match=r"holds more than tensors, and code from a checkpoint is not run"):
        FlexMDMModel.from_pretrained(published)
    assert not (tmp_path / "ran").exists()


def test_a_published_flexmdm_is_no_base_whose_extras_are_lost(published):
    for start in (retrofit, load_base):
        with pytest.raises(ValueError, match=r"is a FlexMDM already.*--merge --out"):
            start(published)


@pytest.mark.parametrize(
    ("config", "why"),
    [
        ({"model_type": "llama", "architectures": ["LlamaForCausalLM"]}, "of the kind 'llama', which is no FlexMDM"),
        ({"model_type": "bert", "architectures": ["BertForSequenceClassification"]}, "of the kind 'bert'"),
        ({"hidden_size": 32}, "a kind that its config.json does not name"),
    ],
)
def test_a_folder_of_another_architecture_is_refused(tmp_path, config, why):
    (tmp_path / "config.json").write_text(json.dumps(config))
    save_file({"weight": torch.ones(2)}, tmp_path / "model.safetensors", metadata={"format": "pt"})
    for loads in (FlexMDMModel.from_pretrained, RetrofitModel.from_pretrained):
        with pytest.raises(ValueError, match=why):
            loads(tmp_path)


def test_a_folder_without_a_model_is_refused(tmp_path):
    with pytest.raises(ValueError, match="no pretrained model .*no config.json there"):
        FlexMDMModel.from_pretrained(tmp_path)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda w: w.pop("network.token_head.bias"), r"1 are missing \(network.token_head.bias\)"),
        (lambda w: w.update(more=torch.ones(2)), r"1 are unknown \(more\)"),
        (lambda w: w.update({"network.token_head.bias": torch.ones(9)}), r"1 are of another shape"),
    ],
)
def test_weights_too_few_too_many_or_of_another_shape_are_refused(tmp_path, change, why):
    FlexMDMModel(FlexMDMConfig(vocab_size=7, hidden_size=32, num_layers=1, num_heads=2)).save_pretrained(tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    change(weights)
    save_file(weights, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ValueError, match=f"not a whole checkpoint .*{why}"):
        FlexMDMModel.from_pretrained(tmp_path)
