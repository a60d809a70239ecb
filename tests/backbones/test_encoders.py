"""Encoders of BERT's family and ESM as a base: at first each predicts what its own class does, whatever the canvas."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import (
    AlbertConfig,
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    BertConfig,
    BertForPreTraining,
    CamembertConfig,
    ElectraConfig,
    ElectraForPreTraining,
    EsmConfig,
    Gemma3TextConfig,
    GraniteConfig,
    LlamaConfig,
    Qwen2Config,
    Qwen3Config,
    RobertaConfig,
    XLMRobertaConfig,
)

from flexmdm.backbones.retrofit import RetrofitModel, load_base, retrofit
from flexmdm.canvas import Canvas, Prompt
from flexmdm.sequences import Ragged
from flexmdm.training.models import quiet_transformers

quiet_transformers()
VOCAB, MASK, CLS, SEP = 23, 21, 2, 3
SIZE = {
    "vocab_size": VOCAB, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 4, "num_attention_heads": 4,
    "max_position_embeddings": 16,
}  # fmt: skip
ESM = {**SIZE, "pad_token_id": 1, "mask_token_id": MASK, "token_dropout": True, "tie_word_embeddings": True}
CONFIGS = {
    "bert": BertConfig(**SIZE, pad_token_id=0),
    "bert, untied": BertConfig(**SIZE, pad_token_id=0, tie_word_embeddings=False),
    "roberta": RobertaConfig(**SIZE, pad_token_id=1, bos_token_id=0, eos_token_id=2),
    "xlm-roberta": XLMRobertaConfig(**SIZE, pad_token_id=0),
    "camembert": CamembertConfig(**SIZE, pad_token_id=1),
    "electra": ElectraConfig(**SIZE, embedding_size=16),
    "electra, as wide": ElectraConfig(**SIZE, embedding_size=32),
    "albert": AlbertConfig(**SIZE, embedding_size=16),
    "albert, in groups": AlbertConfig(**SIZE, embedding_size=16, num_hidden_groups=2, inner_group_num=2),
    "esm": EsmConfig(**ESM, position_embedding_type="rotary"),
    "esm-1b": EsmConfig(**ESM, position_embedding_type="absolute", emb_layer_norm_before=True),
    "esm, masks as tokens": EsmConfig(**ESM | {"token_dropout": False}, position_embedding_type="rotary"),
}
MAIN = ["bert", "roberta", "electra", "albert", "esm"]
LORA = {"rank": 3, "alpha": 6, "dropout": 0.0}
SEQUENCES = [
    [CLS, 4, MASK, 7, SEP],
    [CLS, MASK, SEP],
    [],
    [CLS, 5, MASK, 9, MASK, 11, 12, MASK, MASK, SEP],
    [MASK, 6],
]
TOKENS, LENGTHS = torch.tensor(sum(SEQUENCES, [])), torch.tensor([len(s) for s in SEQUENCES])
ALPHA = torch.tensor([0.0, 0.3, 0.5, 0.9, 1.0])


@pytest.fixture(scope="module")
def folder(tmp_path_factory, randomised):
    """Return a function that writes a model of a configuration with random weights, and returns its folder."""

    def write(name, model_class=None):
        place = tmp_path_factory.mktemp("base")
        make = AutoModelForMaskedLM.from_config if model_class is None else model_class
        model = randomised(make(CONFIGS[name]))
        model.tie_weights()
        model.save_pretrained(place)
        return place

    return write


def by_its_own_class(place, sequences=SEQUENCES):
    """Log-probabilities at the masks by the forward of the class, each sequence on its own."""
    theirs = AutoModelForMaskedLM.from_pretrained(place, attn_implementation="eager").double().eval()
    with torch.no_grad():
        logits = [theirs(torch.tensor([s])).logits[0, torch.tensor(s) == MASK] for s in sequences if s]
    return torch.cat(logits).log_softmax(1)


def predicted(model, tokens=TOKENS, lengths=LENGTHS, alpha=ALPHA, **flags):
    out = model(tokens, lengths, alpha=alpha, **flags)
    return out.logits.log_softmax(1), out.insertions


def stirred(model, seed=1):
    """The model with all its trained weights moved."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for p in model.parameters():
            p.add_(0.2 * torch.randn(p.shape, generator=generator) * p.requires_grad)
    return model


# Before training ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CONFIGS)
def test_at_first_tokens_are_predicted_as_by_the_class_itself_whatever_the_clock_and_the_flags(folder, name):
    place = folder(name)
    expected = by_its_own_class(place)
    for options in ({"insertions": False}, {}, {"lora": LORA}):
        model = retrofit(place, mask_id=MASK, **options).double().eval()
        for flags in ({}, {"given": TOKENS % 2 == 0, "open_gaps": torch.arange(len(TOKENS) + len(LENGTHS)) % 3 > 0}):
            for alpha in (ALPHA, torch.zeros(5), torch.ones(5)):
                logits, insertions = predicted(model, alpha=alpha, **flags)
                torch.testing.assert_close(logits, expected, rtol=0, atol=1e-5)
        assert bool(insertions.any()) == options.get("insertions", True)


@pytest.mark.parametrize("name", MAIN)
def test_after_insertions_tokens_are_predicted_as_by_the_class_itself(folder, name):
    place = folder(name)
    model = retrofit(place, mask_id=MASK)
    canvas = Canvas(Ragged.from_lists(SEQUENCES), MASK)
    counts = torch.arange(len(TOKENS) + len(LENGTHS)) % 4 // 3
    grown = canvas.insert_masks(counts)
    assert int(grown.lengths.sum()) > len(TOKENS)
    expected = by_its_own_class(place, grown.tokens.tolist())
    log_probs = model.denoiser()(grown, ALPHA).log_probs
    possible = torch.arange(VOCAB) != MASK
    expected = expected[:, possible].log_softmax(1)  # nothing is revealed as a mask
    torch.testing.assert_close(log_probs[:, possible].double(), expected, rtol=0, atol=1e-5)


def test_where_only_masks_are_left_esm_predicts_numbers(folder):
    """Its own class divides by the share of what is left."""
    model = retrofit(folder("esm"), mask_id=MASK).eval()
    logits, insertions = predicted(model, torch.full((6,), MASK), torch.tensor([2, 4]), torch.zeros(2))
    assert logits.isfinite().all() and insertions.isfinite().all()


@pytest.mark.parametrize("name", MAIN)
def test_a_sequence_is_predicted_the_same_alone_and_among_others(folder, name):
    model = stirred(retrofit(folder(name), mask_id=MASK, lora=LORA)).double().eval()
    logits, insertions = predicted(model)
    first_mask = first_gap = 0
    for tokens, alpha in zip(SEQUENCES, ALPHA, strict=True):
        alone = predicted(model, torch.tensor(tokens, dtype=torch.int64), torch.tensor([len(tokens)]), alpha[None])
        masks, gaps = slice(first_mask, first_mask + tokens.count(MASK)), slice(first_gap, first_gap + len(tokens) + 1)
        torch.testing.assert_close(alone, (logits[masks], insertions[gaps]), rtol=0, atol=1e-5)
        first_mask, first_gap = masks.stop, gaps.stop


# Training, saving, merging --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lora", [None, LORA])
@pytest.mark.parametrize("name", MAIN)
def test_every_added_and_adapted_weight_learns(folder, name, lora):
    model = retrofit(folder(name), mask_id=MASK, lora=lora).eval()
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-2)
    moved = set()
    for _ in range(3):
        logits, insertions = predicted(model)
        (insertions.log().square().sum() - logits[:, 4].sum()).backward()
        optimizer.step()
        moved |= {name for name, p in model.named_parameters() if p.grad is not None and p.grad.any()}
        optimizer.zero_grad()
    wanted = {name for name, p in model.named_parameters() if p.requires_grad}
    assert moved == wanted
    adapted = {name.split(".")[-4] for name in wanted if "lora_A" in name and "blocks" in name}
    assert adapted == ({"query", "key", "value"} if lora else set())


@pytest.mark.parametrize("name", MAIN)
def test_nothing_is_left_out_at_random_in_training(folder, name):
    """An encoder has dropout; a retrofitted one has none, as its configuration says."""
    model = stirred(retrofit(folder(name), mask_id=MASK)).train()
    torch.testing.assert_close(predicted(model), predicted(model), rtol=0, atol=0)


@pytest.mark.parametrize("lora", [None, LORA])
@pytest.mark.parametrize("name", [*MAIN, "esm-1b", "albert, in groups"])
def test_saved_loaded_and_merged_it_predicts_the_same(folder, name, lora, tmp_path):
    model = stirred(retrofit(folder(name), mask_id=MASK, lora=lora)).eval()
    expected = predicted(model)
    model.save_pretrained(tmp_path / "run")
    again = RetrofitModel.from_pretrained(tmp_path / "run")
    torch.testing.assert_close(predicted(again), expected, rtol=0, atol=0)
    if lora:
        again.merged().save_pretrained(tmp_path / "merged")
        again = RetrofitModel.from_pretrained(tmp_path / "merged")
        torch.testing.assert_close(predicted(again), expected, rtol=1e-5, atol=1e-5)
    further = retrofit(tmp_path / ("merged" if lora else "run"))  # goes on as it is
    torch.testing.assert_close(predicted(further.eval()), expected, rtol=1e-5, atol=1e-5)


def test_rounded_to_half_precision_the_angles_of_esm_stay_exact(folder, tmp_path):
    """It stores them, and its checkpoints may hold others than it would compute."""
    model = retrofit(folder("esm"), mask_id=MASK)
    model.network.rotary.inv_freq.mul_(1.01)
    model.save_pretrained(tmp_path)
    again = RetrofitModel.from_pretrained(tmp_path, dtype=torch.bfloat16)
    assert torch.equal(again.network.rotary.inv_freq, model.network.rotary.inv_freq)
    assert again.network.head.weight.dtype == torch.bfloat16


def test_shared_layers_are_stored_once_and_modulated_at_each_depth(folder, tmp_path):
    model = retrofit(folder("albert"), mask_id=MASK, groups=2)
    assert len(model.network.blocks) == 1 and model.network.order == (0, 0, 0, 0)
    with torch.no_grad():
        for number, linear in enumerate(model.network.modulations):
            linear.bias.fill_(float(number))
    seen = []
    model.network.blocks[0].register_forward_pre_hook(lambda _, args: seen.append(float(args[1].detach().mean())))
    predicted(model)
    assert seen == [0.0, 0.0, 1.0, 1.0]
    model.save_pretrained(tmp_path)
    assert {name.split(".")[2] for name in load_file(tmp_path / "model.safetensors") if ".blocks." in name} == {"0"}


@pytest.mark.parametrize("name", MAIN)
def test_gradients_are_the_same_with_checkpointing(folder, name):
    model = stirred(retrofit(folder(name), mask_id=MASK)).train()

    def gradients():
        model.zero_grad()
        logits, insertions = predicted(model)
        (logits.square().mean() + insertions.square().mean()).backward()
        return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}

    plain = gradients()
    model.gradient_checkpointing_enable()
    torch.testing.assert_close(gradients(), plain, rtol=1e-5, atol=1e-5)


# Positions ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "most"), [("bert", 15), ("roberta", 13), ("albert", 15), ("esm-1b", 13)])
def test_a_sequence_has_to_fit_the_table_of_positions(folder, name, most):
    """Which has a row for the end too, where there are insertions, and none for padding."""
    place = folder(name)
    for insertions in (True, False):
        model, fits = retrofit(place, mask_id=MASK, insertions=insertions).eval(), most + (not insertions)
        assert model.config.most_entries == fits
        predicted(model, torch.full((fits + 2,), MASK), torch.tensor([2, fits]), torch.zeros(2))
        with pytest.raises(ValueError, match=f"has {fits + 1} entries, .* end at {fits}: .*max_length={fits}"):
            predicted(model, torch.full((fits + 1,), MASK), torch.tensor([fits + 1]), torch.zeros(1))


def test_generation_stops_growing_where_the_positions_end(folder):
    model = retrofit(folder("bert"), mask_id=MASK, expected_gap=40.0)
    out = model.generate(prompts=[Prompt.infill([[CLS], [SEP]])] * 4, steps=8, seed=0)
    assert {len(sequence) for sequence in out.sequences} == {15} and all(out.hit_max_length)


def test_angles_have_no_end(folder):
    model = retrofit(folder("esm"), mask_id=MASK).eval()
    assert model.config.most_entries is None
    predicted(model, torch.full((40,), MASK), torch.tensor([40]), torch.zeros(1))


# What a folder holds --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["safetensors", "bin"])
def test_heads_for_other_tasks_are_left_alone(folder, kind):
    place = folder("bert", BertForPreTraining)
    stored = load_file(place / "model.safetensors")
    assert {"bert.pooler.dense.weight", "cls.seq_relationship.weight"} < stored.keys()
    expected = by_its_own_class(place)
    if kind == "bin":
        (place / "model.safetensors").unlink()
        torch.save({**stored, "bert.embeddings.position_ids": torch.arange(16)[None]}, place / "pytorch_model.bin")
    torch.testing.assert_close(predicted(retrofit(place, mask_id=MASK))[0].double(), expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", ["bert.encoder.layer.0.attention.self.distance_embedding.weight", "cls.predictions.x"])
def test_weights_that_would_take_part_are_not_left_alone(folder, name):
    place = folder("bert")
    stored = load_file(place / "model.safetensors")
    save_file({**stored, name: torch.zeros(2)}, place / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ValueError, match=rf"1 unexpected \({name}\)"):
        retrofit(place, mask_id=MASK)


def test_a_checkpoint_without_the_head_that_predicts_masks_is_refused(folder):
    with pytest.raises(ValueError, match="5 missing"):
        retrofit(folder("electra", ElectraForPreTraining), mask_id=MASK)


class Code:
    def __reduce__(self):
        return print, ("code of a checkpoint was run",)


def test_code_in_a_checkpoint_is_not_run(folder, capsys):
    place = folder("bert")
    (place / "model.safetensors").unlink()
    torch.save({"x": Code()}, place / "pytorch_model.bin")
    with pytest.raises(ValueError, match="holds more than tensors .* save it again as safetensors"):
        retrofit(place, mask_id=MASK)
    assert "code" not in capsys.readouterr().out


def test_a_decoder_is_refused(folder):
    place = folder("bert")
    stored = json.loads((place / "config.json").read_text())
    (place / "config.json").write_text(json.dumps({**stored, "is_decoder": True}))
    with pytest.raises(ValueError, match="looks back only"):
        retrofit(place, mask_id=MASK)


# Which architectures --------------------------------------------------------------------------------------------------

LLAMA = {name: SIZE[name] for name in SIZE if name != "max_position_embeddings"}
MARKS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_multiplier_of_0_98_is_noticed_in_any_precision(tmp_path, randomised, dtype):
    """Granite has Llama's modules and multipliers between them; without any it is one of Llama's relatives."""
    for multiplier in (1.0, 0.98):
        scales = {"residual_multiplier": multiplier, "attention_multiplier": 8**-0.5}
        config = GraniteConfig(**LLAMA, **MARKS, **scales, num_key_value_heads=4)
        randomised(AutoModelForCausalLM.from_config(config)).to(dtype).save_pretrained(tmp_path)
        if multiplier == 1.0:
            assert load_base(tmp_path, mask_id=MASK).parts.head.weight.dtype == dtype
        else:
            with pytest.raises(ValueError, match="this architecture cannot be retrofitted"):
                load_base(tmp_path, mask_id=MASK)


def test_modules_that_are_called_in_another_way_are_refused(tmp_path):
    config = Gemma3TextConfig(**LLAMA, **MARKS, num_key_value_heads=2, head_dim=8)
    AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="layer_type.*this architecture cannot be retrofitted"):
        load_base(tmp_path, mask_id=MASK)


@pytest.mark.parametrize(
    ("name", "config"),
    [
        ("a2d-llama", LlamaConfig(**LLAMA, **MARKS, num_key_value_heads=2)),
        ("a2d-qwen2", Qwen2Config(**LLAMA, **MARKS, num_key_value_heads=2)),
        ("a2d-qwen3", Qwen3Config(**LLAMA, **MARKS, num_key_value_heads=2, head_dim=8)),
    ],
)
def test_relatives_under_names_of_their_own_are_known(tmp_path, randomised, name, config):
    """Against the architecture's own forward with all tokens seeing each other."""
    theirs = randomised(AutoModelForCausalLM.from_config(config)).eval()
    theirs.save_pretrained(tmp_path)
    stored = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**stored, "model_type": name, "architectures": ["Other"]}))
    tokens = torch.tensor(SEQUENCES[3])
    everything = torch.ones(1, 1, len(tokens), len(tokens), dtype=torch.bool)
    with torch.no_grad():
        expected = theirs(tokens[None], attention_mask=everything).logits[0, tokens == MASK].log_softmax(1)
    model = retrofit(tmp_path, mask_id=MASK).eval()
    logits, _ = predicted(model, tokens, torch.tensor([len(tokens)]), torch.zeros(1))
    torch.testing.assert_close(logits, expected, rtol=0, atol=2e-6)
