"""The network as a Hugging Face model: saved with all that is needed to use it again, and no size left unchecked."""

import json

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModel

from flexmdm import (
    Canvas,
    CosineSchedule,
    FlexMDMInterpolant,
    PolynomialSchedule,
    Prompt,
    Ragged,
    Template,
    align,
    flexmdm_loss,
    sample_times,
)
from flexmdm.backbones.dit import Block
from flexmdm.backbones.model import FlexMDMConfig, FlexMDMModel
from flexmdm.denoiser import Prediction

V = 7
SMALL = {"vocab_size": V, "hidden_size": 32, "num_layers": 2, "num_heads": 4, "condition_size": 16}
SCHEDULES = FlexMDMInterpolant(CosineSchedule(), PolynomialSchedule(2.0))
TASK = {"name": "maze", "size": 21, "walls": [[0, 1], [2, 3]]}
MAZE = {"vocab_size": 41 * 41, "hidden_size": 256, "num_layers": 8, "num_heads": 8, "condition_size": 128}
TEXT = {"vocab_size": 50257, "hidden_size": 768, "num_layers": 12, "num_heads": 12, "condition_size": 128}
TOKENS, LENGTHS = torch.tensor([1, V, 2, V, V, 3, 3]), torch.tensor([4, 0, 3])


@pytest.fixture
def model(randomised):
    config = FlexMDMConfig(**SMALL, dropout=0.2, expected_gap=2.0, interpolant=SCHEDULES.to_dict(), task=TASK)
    return randomised(FlexMDMModel(config))


def same_weights(a, b):
    a, b = a.state_dict(), b.state_dict()
    return a.keys() == b.keys() and all(a[name].dtype == b[name].dtype and torch.equal(a[name], b[name]) for name in a)


# Saved and loaded -----------------------------------------------------------------------------------------------------


def test_a_model_comes_back_as_it_was(model, tmp_path):
    model.save_pretrained(tmp_path)
    loaded = FlexMDMModel.from_pretrained(tmp_path)
    assert same_weights(loaded, model)
    for name in (*SMALL, "dropout", "insertions", "expected_gap", "mask_id", "task", "interpolant"):
        assert getattr(loaded.config, name) == getattr(model.config, name)
    before, after = (m.eval()(TOKENS, LENGTHS, alpha=torch.tensor([0.1, 0.5, 0.9])) for m in (model, loaded))
    assert torch.equal(before.logits, after.logits) and torch.equal(before.insertions, after.insertions)


def test_a_loaded_model_is_saved_with_the_tokenizer_files_beside_its_weights(model, tmp_path):
    first, second, third = (tmp_path / name for name in ("first", "second", "third"))
    model.save_pretrained(first)
    plain = {file.name for file in first.iterdir()}
    names = {"tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja"}
    for name in {*names, "notes.txt"}:
        (first / name).write_text(name)
    loaded = FlexMDMModel.from_pretrained(first)
    loaded.save_pretrained(second)
    assert {file.name for file in second.iterdir()} == plain | names
    assert all((second / name).read_text() == name for name in names)
    loaded.save_pretrained(first)  # onto itself
    assert (first / "tokenizer.json").read_text() == "tokenizer.json"
    for name in names:
        (first / name).unlink()
    FlexMDMModel.from_pretrained(first).save_pretrained(third)
    assert {file.name for file in third.iterdir()} == plain


def test_schedules_vocabulary_mask_and_task_come_back(model, tmp_path):
    """The schedules used for sampling are those it was trained with."""
    model.save_pretrained(tmp_path)
    loaded = FlexMDMModel.from_pretrained(tmp_path)
    denoiser = loaded.denoiser()
    assert loaded.interpolant == denoiser.interpolant == SCHEDULES
    assert (denoiser.vocab_size, denoiser.mask_id) == (V, V)
    assert loaded.config.task == TASK == json.loads((tmp_path / "config.json").read_text())["task"]
    assert loaded.generate(4, seed=3, max_length=8).sequences == model.generate(4, seed=3, max_length=8).sequences


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_on_loading_and_on_saving(model, tmp_path, dtype):
    model.save_pretrained(tmp_path / "single")
    loaded = FlexMDMModel.from_pretrained(tmp_path / "single", dtype=dtype)
    assert same_weights(loaded, model.to(dtype))
    loaded.save_pretrained(tmp_path / "half")
    again = FlexMDMModel.from_pretrained(tmp_path / "half")
    assert same_weights(again, loaded) and again.dtype == dtype
    assert all(0 <= v < V for s in again.generate(2, max_length=6).sequences for v in s)


def test_a_model_in_shards_comes_back(model, tmp_path):
    model.save_pretrained(tmp_path, max_shard_size="20KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 2
    assert same_weights(FlexMDMModel.from_pretrained(tmp_path), model)


def test_the_auto_classes_know_it(model, tmp_path):
    model.save_pretrained(tmp_path)
    assert isinstance(AutoConfig.from_pretrained(tmp_path), FlexMDMConfig)
    loaded = AutoModel.from_pretrained(tmp_path)
    assert isinstance(loaded, FlexMDMModel) and same_weights(loaded, model)


def test_it_can_be_pushed_to_the_hub():
    assert callable(FlexMDMModel.push_to_hub) and callable(FlexMDMConfig.push_to_hub)


def test_what_a_checkpoint_lacks_starts_as_in_a_new_network(randomised, tmp_path):
    """An MDM gets an insertion head: what it knows stays, and the head starts at the expected gap."""
    mdm = randomised(FlexMDMModel(FlexMDMConfig(**SMALL, insertions=False)))
    mdm.save_pretrained(tmp_path)
    grown = FlexMDMModel.from_pretrained(tmp_path, insertions=True, expected_gap=3.0)
    assert all(torch.equal(p, grown.state_dict()[name]) for name, p in mdm.state_dict().items())
    insertions = grown(TOKENS, LENGTHS).insertions
    torch.testing.assert_close(insertions, torch.full_like(insertions, 3.0))
    first = grown.network.insertion_head.mlp[0].weight  # memory that nobody wrote to may well be all zeros
    assert 0.05 < first.std().item() < 0.5


# Configurations -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wrong", "complaint"),
    [
        ({"vocab_size": 0}, "vocab_size must be positive, got 0"),
        ({"num_layers": -1}, "num_layers must be positive"),
        ({"num_heads": 0}, "num_heads must be positive"),
        ({"hidden_size": 0}, "hidden_size must be positive"),
        ({"condition_size": 0}, "condition_size must be positive"),
        ({"hidden_size": 36}, "hidden_size 36 must be a multiple of twice the 4 heads"),
        ({"dropout": 1.0}, "dropout must lie in"),
        ({"expected_gap": 0.0}, "insertions=False"),
        ({"expected_gap": float("nan")}, "expected_gap must be positive"),
        ({"interpolant": {"insertion": {"name": "linear"}}}, "schedules insertion and unmasking"),
        (
            {"interpolant": {"insertion": {"name": "linaer"}, "unmasking": {"name": "linear"}}},
            "unknown schedule 'linaer'",
        ),
    ],
    ids=lambda x: str(x)[:40] if isinstance(x, dict) else "",
)
def test_a_configuration_that_cannot_be_says_why(wrong, complaint):
    with pytest.raises(ValueError, match=complaint):
        FlexMDMConfig(**{**SMALL, **wrong})


def test_by_default_the_mask_is_the_token_behind_the_vocabulary():
    assert FlexMDMConfig(vocab_size=10).mask_id == 10
    assert FlexMDMConfig(vocab_size=10, mask_id=3).mask_id == 3


# Plain tensors in, a Generation out -----------------------------------------------------------------------------------


def test_forward_takes_plain_tensors_and_by_default_nothing_is_given_all_is_open_and_the_clock_at_0(model):
    model.eval()
    out = model(TOKENS, LENGTHS)
    assert out.logits.shape == (3, V) and out.insertions.shape == (10,)
    flags = {"given": torch.zeros(7, dtype=torch.bool), "open_gaps": torch.ones(10, dtype=torch.bool)}
    said = model(TOKENS, LENGTHS, **flags, alpha=torch.zeros(3))
    assert torch.equal(out.logits, said.logits) and torch.equal(out.insertions, said.insertions)
    prediction = model.denoiser()(Canvas(Ragged(TOKENS, LENGTHS), V), torch.zeros(3))
    assert torch.equal(out.logits.log_softmax(1), prediction.log_probs)
    assert torch.equal(out.insertions, prediction.insertions.values)


def test_forward_reads_masks_as_the_configuration_writes_them(randomised):
    outside, inside = (randomised(FlexMDMModel(FlexMDMConfig(**SMALL, mask_id=m))).eval() for m in (V, 5))
    same = inside(TOKENS.masked_fill(TOKENS == V, 5), LENGTHS)
    assert torch.equal(outside(TOKENS, LENGTHS).logits, same.logits)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"lengths": torch.tensor([4, 0, 2])}, r"tokens must be packed, \[6\] for these lengths, but are \[7\]"),
        ({"tokens": torch.zeros(3, 4, dtype=torch.int64)}, r"packed, \[7\] for these lengths, but are \[3, 4\]"),
        ({"given": torch.zeros(8, dtype=torch.bool)}, r"given must be \[7\]"),
        ({"open_gaps": torch.ones(7, dtype=torch.bool)}, r"open_gaps must be \[10\]"),
        ({"alpha": torch.tensor(0.5)}, r"alpha must be \[3\]"),
    ],
    ids=lambda x: next(iter(x)) if isinstance(x, dict) else "",
)
def test_tensors_that_do_not_fit_together_are_not_taken(model, change, complaint):
    with pytest.raises(ValueError, match=complaint):
        model(**{"tokens": TOKENS, "lengths": LENGTHS, **change})


def test_generate_takes_prompts_and_gives_sequences(model):
    prompts = [Prompt.infill([[1], [2, 3]]), Prompt.prefix([4]), Prompt.through([1, 2, 5]), Prompt.masks(5)]
    out = model.generate(2, prompts=prompts, seed=1, steps=8, max_length=9, trace=True)
    infilled, prefixed, through, filled = (out.sequences[i : i + 2] for i in range(0, 8, 2))
    assert all(s[0] == 1 and s[-2:] == [2, 3] for s in infilled) and all(s[0] == 4 for s in prefixed)
    assert all(s[0] == 1 and s[-1] == 5 and 2 in s[1:-1] for s in through) and all(len(s) == 5 for s in filled)
    assert all(0 <= v < V for s in out.sequences for v in s) and len(out.trace) == 8
    assert out.sequences == model.generate(2, prompts=prompts, seed=1, steps=8, max_length=9).sequences


def test_a_mdm_has_no_insertion_head_and_fills_masks(randomised, tmp_path):
    model = randomised(FlexMDMModel(FlexMDMConfig(**SMALL, insertions=False)))
    assert not [name for name in model.state_dict() if "insertion" in name]
    assert not model(TOKENS, LENGTHS).insertions.any()
    model.save_pretrained(tmp_path)
    loaded = FlexMDMModel.from_pretrained(tmp_path)
    assert same_weights(loaded, model)
    for sampler in ("tau", "adaptive", "spaced", "entropy_bounded", "dilated", "likeliest", "low_confidence"):
        out = loaded.generate(2, prompts=[Prompt.masks(5), Prompt.masks(1)], sampler=sampler, steps=4)
        assert [len(s) for s in out.sequences] == [5, 5, 1, 1]
    with pytest.raises(ValueError, match=r"Prompt.masks"):
        loaded.generate(2)  # nothing to fill, and it inserts nothing


# Training -------------------------------------------------------------------------------------------------------------


def loss_of(model, x1, seed=0):
    """The loss of a batch, as in training: states at all times, targets over all embeddings."""
    interpolant = FlexMDMInterpolant()
    t, weight = sample_times(len(x1), seed)
    s = interpolant.sample(x1, t, Template.free(x1), seed, model.config.mask_id)
    canvas = s.canvas
    out = model(canvas.tokens.values, canvas.lengths, canvas.given.values, canvas.open_gaps.values, s.alpha)
    prediction = Prediction(F.log_softmax(out.logits, 1), canvas.open_gaps.with_values(out.insertions))
    return (weight * flexmdm_loss(prediction, s, interpolant, align(canvas, x1)).total).mean()


def step(model, seed=0):
    torch.manual_seed(seed)  # of dropout
    model.zero_grad()
    loss = loss_of(model, Ragged.from_lists([[1, 2, 3, 4], [5, 0], [], [6, 6, 1, 2, 0, 3, 4]]))
    loss.backward()
    return loss.item(), [p.grad.clone() for p in model.parameters()]


def test_gradient_checkpointing_is_reached_from_hugging_face_and_changes_nothing(model, monkeypatch):
    calls, forward = [], Block.forward
    monkeypatch.setattr(Block, "forward", lambda self, *args: (calls.append(self), forward(self, *args))[1])
    loss, gradients = step(model.train())
    assert len(calls) == 2
    assert step(model, seed=1)[0] != loss  # dropout is at work
    model.gradient_checkpointing_enable()
    assert model.is_gradient_checkpointing and model.network.gradient_checkpointing
    calls.clear()
    again, checkpointed = step(model)
    assert len(calls) == 4  # every block once more on the way back
    assert again == loss
    for a, b in zip(gradients, checkpointed, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-6)
    model.gradient_checkpointing_disable()
    assert not model.network.gradient_checkpointing


# The paper's sizes ----------------------------------------------------------------------------------------------------


def count(size):
    with torch.device("meta"):
        return FlexMDMModel(FlexMDMConfig(**size)).count_parameters()


def test_the_text_model_has_the_175_million_parameters_of_the_paper():
    assert count(TEXT)["total"] == pytest.approx(175e6, rel=0.03)


def test_the_maze_model_has_the_8_and_a_half_million_of_the_paper_beside_its_input_embeddings():
    counts = count(MAZE)
    assert counts["input_embedding"] == (41 * 41 + 2) * 256
    assert counts["total"] - counts["input_embedding"] == pytest.approx(8.5e6, rel=0.03)


@pytest.mark.slow
def test_the_text_model_takes_a_training_step():
    model = FlexMDMModel(FlexMDMConfig(**TEXT)).train()
    generator = torch.Generator().manual_seed(0)
    x1 = Ragged(torch.randint(0, TEXT["vocab_size"], (24,), generator=generator), torch.tensor([9, 0, 12, 3]))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    losses = []
    for _ in range(2):  # at first only the heads learn: what lies below them hears of it in the second step
        loss = loss_of(model, x1)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert all(bool(p.grad.isfinite().all()) for p in model.parameters())
    assert all(p.grad.any() for p in model.network.blocks[0].modulation.parameters())
    assert losses[1] < losses[0]


def test_a_checkpoint_from_before_queries_and_keys_had_biases_loads_as_it_was(tmp_path):
    config = {"vocab_size": 7, "hidden_size": 32, "num_layers": 2, "num_heads": 2, "condition_size": 16}
    model = FlexMDMModel(FlexMDMConfig(**config))  # without them all biases are zero
    model.save_pretrained(tmp_path)
    weights = {
        name: value for name, value in load_file(tmp_path / "model.safetensors").items() if "qkv.bias" not in name
    }
    save_file(weights, tmp_path / "model.safetensors", metadata={"format": "pt"})
    stored = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({k: v for k, v in stored.items() if k != "neighbours"}))
    loaded = FlexMDMModel.from_pretrained(tmp_path)
    for name, value in model.state_dict().items():
        assert torch.equal(loaded.state_dict()[name], value), name


def test_biases_of_a_checkpoint_stay_whatever_a_new_network_starts_with(tmp_path):
    config = FlexMDMConfig(vocab_size=7, hidden_size=32, num_layers=1, num_heads=2, condition_size=16, neighbours=True)
    model = FlexMDMModel(config)
    assert model.network.blocks[0].qkv.bias.any()
    torch.nn.init.constant_(model.network.blocks[0].qkv.bias, 0.25)
    model.save_pretrained(tmp_path)
    assert (FlexMDMModel.from_pretrained(tmp_path).network.blocks[0].qkv.bias == 0.25).all()


@pytest.mark.parametrize("regions", [[4.0, 9.0], {"whole": [0.0, 0.25, 0.75], "between": [0.5, 0.5]}])
def test_a_head_that_counts_is_loaded_as_it_was_saved(tmp_path, regions):
    """Models are made without memory for their weights when they are loaded, and the law of sizes has to be there."""
    config = FlexMDMConfig(
        vocab_size=7, hidden_size=32, num_layers=1, num_heads=2, condition_size=16, regions=regions, clock="logarithms"
    )
    model = FlexMDMModel(config).eval()
    model.save_pretrained(tmp_path)
    canvas, clock = Canvas(Ragged.from_lists([[7, 7], []]), mask_id=7), torch.tensor([0.5, 0.0])
    expected, found = (one.denoiser()(canvas, clock) for one in (model, FlexMDMModel.from_pretrained(tmp_path)))
    assert torch.equal(found.insertions.values, expected.insertions.values)
