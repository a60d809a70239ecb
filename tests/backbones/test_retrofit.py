"""A pretrained model with the parts of FlexMDM: at first what it was, then whatever training makes of it."""

import json
import shutil
from dataclasses import asdict

import pytest
import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import (
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    GraniteConfig,
    LlamaConfig,
    ModernBertConfig,
    Phi3Config,
    PreTrainedTokenizerFast,
    Qwen2Config,
)

from flexmdm.backbones import llada
from flexmdm.backbones.encoder import Anatomy, Parts
from flexmdm.backbones.retrofit import RetrofitModel, load_base, retrofit, untrained
from flexmdm.backbones.retrofit_network import Retrofit, RetrofitConfig
from flexmdm.training.models import quiet_transformers

quiet_transformers()
VOCAB, MASK = 23, 21
BODY = llada.shape(VOCAB, hidden=32, layers=4, heads=4)
LORA = {"rank": 3, "alpha": 6, "dropout": 0.0}
SEQUENCES = [[1, MASK, 4, MASK], [], [MASK], [2, 5, MASK, 9, MASK, 11, 12]]
TOKENS, LENGTHS = torch.tensor(sum(SEQUENCES, [])), torch.tensor([len(s) for s in SEQUENCES])
ALPHA = torch.tensor([0.0, 0.3, 0.9, 1.0])


@pytest.fixture(scope="module")
def base(tmp_path_factory, randomised):
    folder = tmp_path_factory.mktemp("base")
    mdm = untrained(BODY, mask_id=MASK, insertions=False)
    llada.export(randomised(mdm.network), BODY, MASK, folder)
    return folder


@pytest.fixture
def stirred(base, randomised):
    """A retrofitted model whose added and adapted weights are all away from zero."""

    def make(**options):
        model = retrofit(base, **options)
        generator = torch.Generator().manual_seed(1)
        with torch.no_grad():
            for p in model.parameters():
                if p.requires_grad:
                    p.add_(0.2 * torch.randn(p.shape, generator=generator))
        return model

    return make


def predicted(model, tokens=TOKENS, lengths=LENGTHS, alpha=ALPHA, **flags):
    out = model(tokens, lengths, alpha=alpha, **flags)
    return out.logits, out.insertions


@pytest.mark.parametrize("lora", [None, LORA])
def test_before_training_the_tokens_are_predicted_as_by_the_base_whatever_the_clock_and_the_flags(base, lora):
    mdm, flexmdm = retrofit(base, insertions=False).double().eval(), retrofit(base, lora=lora).double().eval()
    expected, none = predicted(mdm)
    assert not none.any()
    given = torch.arange(len(TOKENS)) % 2 == 0
    open_gaps = torch.arange(len(TOKENS) + len(LENGTHS)) % 3 > 0
    for alpha in (ALPHA, torch.zeros(4), torch.ones(4)):
        for flags in ({}, {"given": given, "open_gaps": open_gaps}):
            logits, insertions = predicted(flexmdm, alpha=alpha, **flags)
            torch.testing.assert_close(logits, expected, rtol=0, atol=1e-13)
    assert torch.equal(insertions > 0, open_gaps)


def test_the_insertion_head_starts_at_what_is_expected(base):
    _, insertions = predicted(retrofit(base, expected_gap=3.5).eval(), alpha=torch.zeros(4))
    torch.testing.assert_close(insertions, torch.full_like(insertions, 3.5))


def test_every_added_weight_learns_and_the_predictions_move(base):
    model = retrofit(base, lora=LORA).eval()
    before, _ = predicted(model)
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-2)
    for _ in range(3):
        logits, insertions = predicted(model)
        (logits.logsumexp(1).sum() - logits[:, 3].sum() + insertions.log().square().sum()).backward()
        optimizer.step()
        moved = {name for name, p in model.named_parameters() if p.grad is not None and p.grad.any()}
        optimizer.zero_grad()
    trained = {name for name, p in model.named_parameters() if p.requires_grad}
    assert moved == trained
    after, _ = predicted(model)
    assert (after - before).abs().max() > 1e-2


@pytest.mark.parametrize("lora", [None, LORA])
def test_gradients_are_the_same_with_checkpointing(stirred, lora):
    model = stirred(lora=lora).train()

    def gradients():
        model.zero_grad()
        logits, insertions = predicted(model)
        (logits.square().mean() + insertions.square().mean()).backward()
        return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}

    plain = gradients()
    model.gradient_checkpointing_enable()
    assert model.network.gradient_checkpointing
    torch.testing.assert_close(gradients(), plain, rtol=1e-5, atol=1e-5)


def test_a_sequence_is_told_the_same_alone_and_among_others(stirred):
    model = stirred(lora=LORA).eval()
    logits, insertions = predicted(model)
    first_mask = first_gap = 0
    for tokens, alpha in zip(SEQUENCES, ALPHA, strict=True):
        alone = predicted(model, torch.tensor(tokens, dtype=torch.int64), torch.tensor([len(tokens)]), alpha[None])
        masks = tokens.count(MASK)
        torch.testing.assert_close(alone[0], logits[first_mask : first_mask + masks], rtol=0, atol=1e-5)
        gaps = slice(first_gap, first_gap + len(tokens) + 1)
        torch.testing.assert_close(alone[1], insertions[gaps], rtol=0, atol=1e-5)
        first_mask, first_gap = first_mask + masks, gaps.stop


def test_compiled_blocks_compute_the_same(stirred):
    model = stirred(lora=None).eval()
    expected = predicted(model)
    model.network.compile_blocks()
    torch.testing.assert_close(predicted(model), expected, rtol=0, atol=1e-5)


def test_layers_are_cut_into_consecutive_groups_that_share_their_modulation(base):
    model = retrofit(base, groups=2).eval()
    seen = []
    for block in model.network.blocks:
        block.register_forward_pre_hook(lambda _, args: seen.append(args[1]))
    with torch.no_grad():
        for number, linear in enumerate(model.network.modulations):
            linear.bias.fill_(float(number))
    predicted(model)
    assert [float(m.detach().mean()) for m in seen] == [0.0, 0.0, 1.0, 1.0]
    with pytest.raises(ValueError, match="4 layers cannot be cut into 5 groups"):
        RetrofitConfig(encoder={"model_type": "llama", **BODY.to_diff_dict()}, mask_id=MASK, groups=5)


# Saving, loading, merging ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lora", [None, LORA])
def test_saved_and_loaded_it_says_the_same(stirred, tmp_path, lora):
    model = stirred(lora=lora).eval()
    model.save_pretrained(tmp_path)
    again = RetrofitModel.from_pretrained(tmp_path)
    for mine, theirs in zip(predicted(model), predicted(again), strict=True):
        assert torch.equal(mine, theirs)
    size = (tmp_path / "model.safetensors").stat().st_size
    everything = 4 * sum(p.numel() for p in model.parameters())
    trained = 4 * sum(p.numel() for p in model.parameters() if p.requires_grad)
    assert size == pytest.approx(trained if lora else everything, rel=0.25)


def test_merged_it_says_the_same_and_needs_no_base(stirred, tmp_path):
    model = stirred(lora=LORA).eval()
    expected = predicted(model)
    model.merged().save_pretrained(tmp_path)
    assert not any("lora" in name for name, _ in model.named_parameters())
    again = RetrofitModel.from_pretrained(tmp_path)
    assert again.config.base is None
    torch.testing.assert_close(predicted(again), expected, rtol=0, atol=1e-5)
    again.generate(num_samples=2, steps=4, seed=0)


def test_it_is_saved_with_the_tokenizer_it_was_loaded_with_but_not_once_it_has_another_task(stirred, tmp_path):
    stirred().save_pretrained(tmp_path / "run")
    (tmp_path / "run" / "tokenizer.json").write_text("{}")
    RetrofitModel.from_pretrained(tmp_path / "run").save_pretrained(tmp_path / "copy")
    assert (tmp_path / "copy" / "tokenizer.json").read_text() == "{}"
    assert "run" not in (tmp_path / "copy" / "config.json").read_text()
    retrofit(tmp_path / "run").save_pretrained(tmp_path / "further")
    assert not (tmp_path / "further" / "tokenizer.json").exists()


def test_an_adapter_is_refused_by_another_base(stirred, base, tmp_path, randomised):
    stirred(lora=LORA).save_pretrained(tmp_path / "adapter")
    other = untrained(BODY, mask_id=MASK, insertions=False)
    llada.export(randomised(other.network, seed=5), BODY, MASK, tmp_path / "other")
    config = RetrofitConfig.from_pretrained(tmp_path / "adapter")
    config.base = str(tmp_path / "other")
    config.save_pretrained(tmp_path / "adapter")
    with pytest.raises(ValueError, match="an adapter fits only its own base"):
        RetrofitModel.from_pretrained(tmp_path / "adapter")


def test_an_incomplete_adapter_is_refused(stirred, tmp_path):
    model = stirred(lora=LORA)
    some = {name: p for name, p in model.state_dict().items() if "clock" not in name}
    model.save_pretrained(tmp_path, state_dict=some)
    with pytest.raises(ValueError, match=r"4 are missing \(network.clock"):
        RetrofitModel.from_pretrained(tmp_path)


def test_a_damaged_adapter_and_one_of_another_rank_are_refused(stirred, tmp_path):
    model = stirred(lora=LORA)
    model.save_pretrained(tmp_path)
    config = RetrofitConfig.from_pretrained(tmp_path)
    config.lora = {**LORA, "rank": 5}
    config.save_pretrained(tmp_path)
    with pytest.raises(ValueError, match=r"26 are of another shape"):
        RetrofitModel.from_pretrained(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"12345678")
    with pytest.raises(ValueError, match="are damaged"):
        RetrofitModel.from_pretrained(tmp_path)


# Going on from a run --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("had", "gets"), [(None, None), (LORA, None), (LORA, LORA), (None, LORA)])
def test_what_is_a_flexmdm_already_goes_on_as_it_is(stirred, tmp_path, had, gets):
    model = stirred(lora=had).eval()
    model.save_pretrained(tmp_path)
    again = retrofit(tmp_path, lora=gets).eval()
    torch.testing.assert_close(predicted(again), predicted(model), rtol=0, atol=1e-6)
    adapted = had or gets
    assert (again.config.lora is None) == (adapted is None)
    trained = set(again.count_trained())
    assert ("pretrained" in trained) == (adapted is None) and "insertion head" in trained


def test_merged_and_then_trained_all_weights_move(stirred, tmp_path):
    model = stirred(lora=LORA).merged()
    assert all(p.requires_grad for p in model.parameters())


def test_other_adapters_than_it_has_are_refused(stirred, tmp_path):
    stirred(lora=LORA).save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="has adapters already.*merge them first"):
        retrofit(tmp_path, lora={**LORA, "rank": 2})


@pytest.mark.parametrize("lora", [None, LORA])
def test_adapters_on_a_run_come_back_as_they_were_trained(base, tmp_path, lora, monkeypatch):
    """Whatever precision the run was trained in, with or without adapters of its own."""
    mdm = retrofit(base, insertions=False, lora=lora)
    with torch.no_grad():
        for p in mdm.parameters():
            p.add_(0.01 if p.requires_grad else 0.0)
    mdm.save_pretrained(tmp_path / "mdm")
    model = retrofit(tmp_path / "mdm", lora=LORA, dtype=torch.bfloat16).eval()
    assert model.network.norm.weight.dtype == torch.bfloat16
    model.save_pretrained(tmp_path / "flexmdm")
    again = RetrofitModel.from_pretrained(tmp_path / "flexmdm")
    for mine, theirs in zip(predicted(model), predicted(again), strict=True):
        assert torch.equal(mine, theirs)
    with pytest.raises(ValueError, match="only a pretrained model can be loaded in 4 bits"):
        retrofit(tmp_path / "mdm", lora=LORA, four_bit=True)


def test_a_run_that_gets_adapters_keeps_its_groups(base, tmp_path):
    retrofit(base, groups=2).save_pretrained(tmp_path)
    assert retrofit(tmp_path, lora=LORA).config.groups == 2


def test_a_base_of_which_one_matrix_has_changed_is_another(stirred, base, tmp_path, randomised):
    model = stirred(lora=LORA)
    model.save_pretrained(tmp_path / "adapter")
    changed = retrofit(base, insertions=False)
    with torch.no_grad():
        changed.network.blocks[2].attention.q_proj.weight.add_(0.01)
    llada.export(changed.network, BODY, MASK, tmp_path / "changed")
    with pytest.raises(ValueError, match="an adapter fits only its own base"):
        RetrofitModel.from_pretrained(tmp_path / "adapter", base=str(tmp_path / "changed"))
    with pytest.raises(ValueError, match="put those back, or begin a new run"):
        retrofit(tmp_path / "changed", lora=LORA).check_checkpoint(tmp_path / "adapter")


def test_adapters_on_weights_in_4_bits_are_merged_into_those_in_16(base, tmp_path, monkeypatch):
    """The quantised weights themselves need a GPU: here they only pretend to be."""
    model = retrofit(base, lora=LORA, dtype=torch.bfloat16).eval()
    monkeypatch.setattr("flexmdm.backbones.retrofit.is_quantised", lambda network: network is model.network)
    expected = predicted(model)
    merged = model.merged()
    assert merged is not model and merged.config.lora is None
    torch.testing.assert_close(predicted(merged), expected, rtol=0, atol=0.1)


def test_the_base_is_found_from_anywhere_and_can_move(stirred, base, tmp_path, monkeypatch):
    monkeypatch.chdir(base.parent)
    model = retrofit(base.name, lora=LORA, mask_id=MASK)
    model.save_pretrained(tmp_path / "adapter")
    monkeypatch.chdir(tmp_path)
    RetrofitModel.from_pretrained(tmp_path / "adapter")
    shutil.copytree(base, tmp_path / "moved")
    assert RetrofitModel.from_pretrained(tmp_path / "adapter", base=str(tmp_path / "moved")).config.mask_id == MASK


def test_frozen_weights_come_back_in_their_precision_and_angles_stay_exact(base, tmp_path):
    model = retrofit(base, lora=LORA, dtype=torch.bfloat16)
    model.save_pretrained(tmp_path / "adapter")
    again = RetrofitModel.from_pretrained(tmp_path / "adapter")
    assert (
        again.network.norm.weight.dtype == torch.bfloat16 and again.network.clock.mlp[0].weight.dtype == torch.float32
    )
    again.merged().save_pretrained(tmp_path / "merged")
    merged = RetrofitModel.from_pretrained(tmp_path / "merged")
    assert merged.network.norm.weight.dtype == torch.bfloat16
    whole = RetrofitModel.from_pretrained(tmp_path / "merged", dtype=torch.bfloat16)
    for network in (again.network, merged.network, whole.network):
        assert network.rotary.inv_freq.dtype == torch.float32


def test_the_trained_weights_of_the_8b_shape_are_those_of_the_paper():
    with torch.device("meta"):
        encoder = {"model_type": "llama", **llada.llama_config(llada.SHAPE_8B).to_diff_dict()}
        lora = {"rank": 128, "alpha": 128, "dropout": 0.1}
        model = RetrofitModel(RetrofitConfig(encoder=encoder, mask_id=126336, lora=lora, groups=4))
    parts = model.count_trained()
    assert parts["lora on queries, keys, values"] == 32 * 3 * 128 * (4096 + 4096)
    assert parts["lora on the head"] == 128 * (4096 + 126464)
    assert parts["adaln"] == 4 * (4096 + 1) * 8192
    assert parts["time embedding"] == 4096 * 16384 + 16384 + 16384 * 4096 + 4096
    assert sum(parts.values()) == pytest.approx(403e6, rel=0.005)


# Other bodies ---------------------------------------------------------------------------------------------------------


def test_a_relative_with_biases_and_shared_heads_is_taken_apart_too(randomised):
    """Qwen2, the body of Dream, against its own forward on one sequence at a time."""
    config = Qwen2Config(
        vocab_size=VOCAB, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, is_causal=False,
    )  # fmt: skip
    model = randomised(AutoModelForCausalLM.from_config(config)).double().eval()
    everything = torch.ones(1, 1, 7, 7, dtype=torch.bool)
    tokens = torch.tensor([2, 5, MASK, 9, MASK, 11, 12])
    expected = model(tokens[None], attention_mask=everything).logits[0]

    for shifted, rows in ((False, [2, 4]), (True, [1, 3])):
        anatomy, encoder = Anatomy(shifted=shifted), {"model_type": "qwen2", **config.to_diff_dict()}
        described = RetrofitConfig(encoder=encoder, anatomy=asdict(anatomy), mask_id=MASK, insertions=False)
        network = Retrofit(Parts.of(model, anatomy), described).eval()
        packed = tokens.masked_fill(tokens == MASK, VOCAB)
        logits, _ = network(packed, torch.tensor([7]), tokens > 0, torch.ones(8).bool(), torch.zeros(1))
        torch.testing.assert_close(logits, expected[rows], rtol=0, atol=1e-6)


def test_dream_is_qwen_with_its_rows_shifted(tmp_path, randomised):
    config = Qwen2Config(vocab_size=VOCAB, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
                         num_attention_heads=4, num_key_value_heads=2)  # fmt: skip
    randomised(AutoModelForCausalLM.from_config(config)).save_pretrained(tmp_path)
    stored = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**stored, "model_type": "Dream", "mask_token_id": MASK}))
    base = load_base(tmp_path)
    assert base.anatomy.shifted and base.mask_id == MASK and base.encoder.model_type == "qwen2"
    assert retrofit(tmp_path).network.shifted


MODERN = ModernBertConfig(
    vocab_size=VOCAB, hidden_size=32, intermediate_size=48, num_hidden_layers=4, num_attention_heads=4,
    global_attn_every_n_layers=3, local_attention=4, pad_token_id=0, bos_token_id=1, eos_token_id=2, cls_token_id=1,
    sep_token_id=2,
)  # fmt: skip


@pytest.fixture(scope="module")
def modern_bert(tmp_path_factory, randomised):
    """An encoder with windows and rotations that differ between layers, a layer before its head, and tied tables."""
    folder = tmp_path_factory.mktemp("modern-bert")
    randomised(AutoModelForMaskedLM.from_config(MODERN)).save_pretrained(folder)
    tokenizer = Tokenizer(WordLevel({"a": 0, "[UNK]": 1, "[MASK]": MASK}, unk_token="[UNK]"))
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, mask_token="[MASK]").save_pretrained(folder)
    return folder


@pytest.mark.parametrize("lora", [None, LORA])
def test_modern_bert_is_predicted_as_by_itself(modern_bert, lora):
    """Against its own forward on one sequence at a time; some are longer than its window."""
    theirs = AutoModelForMaskedLM.from_pretrained(modern_bert, attn_implementation="eager").double().eval()
    expected = [
        theirs(torch.tensor([tokens])).logits[0, torch.tensor(tokens) == MASK] for tokens in SEQUENCES if tokens
    ]
    for insertions in (False, True):
        model = retrofit(modern_bert, insertions=insertions, lora=lora).double().eval()
        assert model.config.mask_id == MASK, "as its tokenizer says"
        torch.testing.assert_close(predicted(model)[0], torch.cat(expected), rtol=0, atol=1e-6)


def test_modern_bert_is_saved_loaded_and_merged(modern_bert, tmp_path):
    model = retrofit(modern_bert, lora=LORA).eval()
    with torch.no_grad():
        for p in model.parameters():
            if p.requires_grad:
                p.add_(0.1)
    expected = predicted(model)
    model.save_pretrained(tmp_path / "adapters")
    again = RetrofitModel.from_pretrained(tmp_path / "adapters")
    torch.testing.assert_close(predicted(again), expected, rtol=0, atol=0)
    again.merged().save_pretrained(tmp_path / "merged")
    alone = RetrofitModel.from_pretrained(tmp_path / "merged")
    torch.testing.assert_close(predicted(alone), expected, rtol=1e-4, atol=1e-5)


def test_a_body_that_does_more_than_its_parts_is_refused(tmp_path):
    """Granite has Llama's modules, and multiplies what is between them."""
    config = GraniteConfig(vocab_size=VOCAB, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
                           num_attention_heads=4, num_key_value_heads=4, residual_multiplier=0.5)  # fmt: skip
    AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="this architecture cannot be retrofitted"):
        load_base(tmp_path, mask_id=MASK)


def test_a_body_whose_attention_would_get_no_adapter_is_refused(tmp_path):
    config = Phi3Config(vocab_size=VOCAB, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
                        num_attention_heads=4, pad_token_id=0, bos_token_id=1, eos_token_id=2)  # fmt: skip
    AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path)
    assert retrofit(tmp_path, mask_id=MASK).config.mask_id == MASK
    with pytest.raises(ValueError, match="has no q_proj, k_proj, v_proj to adapt"):
        retrofit(tmp_path, mask_id=MASK, lora=LORA)


def test_a_body_that_is_not_as_described_is_refused():
    model = AutoModelForCausalLM.from_config(LlamaConfig(vocab_size=9, hidden_size=8, num_hidden_layers=1,
                                                         num_attention_heads=2, intermediate_size=8))  # fmt: skip
    with pytest.raises(ValueError, match="describe where its layers and its head are"):
        Parts.of(model, Anatomy(layers="encoder.layer"))


POWER = {"name": "power", "exponent": 1.7}
LAYOUTS = {
    "no flags": {"flags": False},
    "gaps behind entries": {"gap_behind": True},
    "head of logarithms": {"log_head": True},
    "clock of time": {"time": POWER},
    "all of it": {"flags": False, "gap_behind": True, "log_head": True, "time": POWER},
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_network_of_another_layout_predicts_alone_as_in_a_batch_and_after_loading(layout, randomised, tmp_path):
    model = untrained(BODY, mask_id=MASK, expected_gap=2.0, **LAYOUTS[layout]).eval()
    randomised(model.network)
    behind = LAYOUTS[layout].get("gap_behind", False)
    sequences = [[1, MASK, 4, MASK], [3], [2, 5, MASK, 9, MASK, 11, 12]]
    gaps = [[False] * behind + [True] * (len(tokens) + 1 - behind) for tokens in sequences]

    def asked(model, chosen):
        tokens = torch.tensor(sum((sequences[i] for i in chosen), []))
        open_gaps = torch.tensor(sum((gaps[i] for i in chosen), []))
        lengths = torch.tensor([len(sequences[i]) for i in chosen])
        return predicted(model, tokens, lengths, ALPHA[torch.tensor(chosen)], open_gaps=open_gaps)

    together = asked(model, [0, 1, 2])
    alone = [torch.cat(parts) for parts in zip(*(asked(model, [i]) for i in range(3)), strict=True)]
    torch.testing.assert_close(alone, list(together), rtol=1e-5, atol=1e-5)
    assert torch.equal(together[1] > 0, torch.tensor(sum(gaps, [])))
    model.save_pretrained(tmp_path)
    torch.testing.assert_close(asked(RetrofitModel.from_pretrained(tmp_path), [0, 1, 2]), together)


def test_a_clock_of_time_shows_the_time_of_its_schedule():
    model, plain = (untrained(BODY, mask_id=MASK, time=time).double() for time in (POWER, None))
    assert len(plain.network.clock.mlp) == len(model.network.clock.mlp) + 1  # which ends with a linear layer
    plain.network.clock.mlp[0].load_state_dict(model.network.clock.mlp[0].state_dict())
    seen = []
    for one in (model, plain):
        one.network.clock.mlp[0].register_forward_pre_hook(lambda _, args: seen.append(args[0]))
    t = torch.tensor([0.0, 0.2, 0.9, 1.0], dtype=torch.float64)
    model.network.clock(1 - (1 - t) ** 1.7)
    plain.network.clock(t)
    torch.testing.assert_close(*seen, rtol=0, atol=1e-6)


def test_options_that_do_not_go_together_are_refused():
    with pytest.raises(ValueError, match=r"a head that counts \(regions\) gives no logarithms"):
        untrained(BODY, mask_id=MASK, log_head=True, regions=[3.0, 4.0])
    with pytest.raises(ValueError, match="unknown schedule 'steep'"):
        untrained(BODY, mask_id=MASK, time={"name": "steep"})
