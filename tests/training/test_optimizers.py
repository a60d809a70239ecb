"""What decays, what Muon takes, and that two optimizers in one are the two apart."""

import copy
import io

import pytest
import torch

from flexmdm.backbones.model import FlexMDMConfig, FlexMDMModel
from flexmdm.training.optimizers import Muon, Together, make_optimizer
from flexmdm.training.recipe import Recipe


@pytest.fixture
def model():
    torch.manual_seed(0)
    return FlexMDMModel(FlexMDMConfig(vocab_size=5, hidden_size=16, num_layers=2, num_heads=2, condition_size=8))


def names_of(model, group):
    name = {id(p): n for n, p in model.named_parameters()}
    return {name[id(p)] for p in group["params"]}


def fill_gradients(model, seed):
    generator = torch.Generator().manual_seed(seed)
    for p in model.parameters():
        p.grad = torch.randn(p.shape, generator=generator)


@pytest.mark.parametrize("kind", ["adamw", "muon"])
def test_every_weight_is_optimized_exactly_once(kind, model):
    optimizer = make_optimizer(model, Recipe(optimizer=kind))
    taken = [id(p) for group in optimizer.param_groups for p in group["params"]]
    assert sorted(taken) == sorted(id(p) for p in model.parameters())


@pytest.mark.parametrize("kind", ["adamw", "muon"])
def test_matrices_decay_and_biases_do_not(kind, model, weights):
    before = weights(model)
    for p in model.parameters():
        p.data.add_(1.0)
        p.grad = torch.zeros_like(p)
    make_optimizer(model, Recipe(optimizer=kind, learning_rate=0.1, weight_decay=0.5)).step()
    for name, p in model.named_parameters():
        factor = 1 - 0.1 * 0.5 if p.ndim >= 2 else 1.0
        torch.testing.assert_close(p.detach(), factor * (before[name] + 1.0), msg=name)


def test_muon_takes_the_matrices_of_the_blocks_and_nothing_else(model):
    muon = make_optimizer(model, Recipe(optimizer="muon")).parts[0]
    assert isinstance(muon, Muon)
    expected = {f"network.blocks.{b}.{part}.weight" for b in (0, 1) for part in ("qkv", "merge", "widen", "narrow")}
    assert set.union(*(names_of(model, group) for group in muon.param_groups)) == expected


def test_adapters_are_no_matrices_for_muon():
    model = torch.nn.ModuleDict({"blocks": torch.nn.ModuleDict({"q": torch.nn.Linear(4, 4, bias=False)})})
    model["blocks"]["q"].lora_A = torch.nn.Linear(4, 2, bias=False)
    model["blocks"]["q"].weight.requires_grad = False
    muon, adamw = make_optimizer(model, Recipe(optimizer="muon")).parts
    assert not any(group["params"] for group in muon.param_groups)
    assert names_of(model, adamw.param_groups[0]) == {"blocks.q.lora_A.weight"}


def test_adamw_alone_is_torchs_with_the_figures_of_the_recipe(model):
    optimizer = make_optimizer(model, Recipe(learning_rate=0.3, beta2=0.8, weight_decay=0.2))
    assert type(optimizer) is torch.optim.AdamW
    assert [(g["lr"], g["betas"], g["weight_decay"]) for g in optimizer.param_groups] == [
        (0.3, (0.9, 0.8), 0.2),
        (0.3, (0.9, 0.8), 0.0),
    ]


def test_muon_steps_like_torchs_up_to_its_precision():
    generator = torch.Generator().manual_seed(0)
    shapes = [(12, 12), (24, 8), (8, 24), (12, 12)]
    mine = [torch.nn.Parameter(torch.randn(shape, generator=generator)) for shape in shapes]
    theirs = copy.deepcopy(mine)
    ours = Muon(mine, lr=0.1, weight_decay=0.2)
    torchs = torch.optim.Muon(theirs, lr=0.1, weight_decay=0.2, adjust_lr_fn="match_rms_adamw")
    for _ in range(3):
        for a, b in zip(mine, theirs, strict=True):
            a.grad = torch.randn(a.shape, generator=generator)
            b.grad = a.grad.clone()
        ours.step()
        torchs.step()
    for a, b in zip(mine, theirs, strict=True):
        assert float((a - b).detach().norm() / b.detach().norm()) < 0.01  # bfloat16 has 8 bits


def test_muon_in_bfloat16_steps_as_muon_does_and_is_for_trainings_in_bfloat16(model):
    full = [torch.nn.Parameter(torch.randn(24, 8, generator=torch.Generator().manual_seed(0)))]
    half = copy.deepcopy(full)
    for weights, optimizer in ((full, Muon(full, lr=0.1)), (half, Muon(half, lr=0.1, in_bfloat16=True))):
        weights[0].grad = torch.randn(24, 8, generator=torch.Generator().manual_seed(1))
        optimizer.step()
    distance = float((full[0] - half[0]).detach().norm() / full[0].detach().norm())
    assert half[0].dtype == torch.float32 and 0 < distance < 0.01
    for dtype in ("float32", "bfloat16"):
        assert make_optimizer(model, Recipe(optimizer="muon", dtype=dtype)).parts[0]._in_bfloat16 == (
            dtype != "float32"
        )


def test_muon_takes_a_stack_of_matrices_apart():
    generator = torch.Generator().manual_seed(0)
    stack = torch.nn.Parameter(torch.randn(15, 7, generator=generator))
    stack.grad = torch.randn(15, 7, generator=generator)
    parts = [torch.nn.Parameter(part.detach().clone()) for part in stack.chunk(3)]
    for part, gradient in zip(parts, stack.grad.chunk(3), strict=True):
        part.grad = gradient.clone()
    Muon([{"params": [stack], "pieces": 3}], lr=0.1).step()
    Muon(parts, lr=0.1).step()
    torch.testing.assert_close(stack, torch.cat(parts))


def test_the_projections_to_queries_keys_and_values_are_such_a_stack(model):
    muon = make_optimizer(model, Recipe(optimizer="muon")).parts[0]
    pieces = {name: group["pieces"] for group in muon.param_groups for name in names_of(model, group)}
    assert {name.split(".")[-2]: count for name, count in pieces.items()} == {
        "qkv": 3, "merge": 1, "widen": 1, "narrow": 1
    }  # fmt: skip


def pair(model):
    """Muon for one half of the weights and AdamW for the other."""
    matrices = [p for p in model.parameters() if p.ndim == 2]
    rest = [p for p in model.parameters() if p.ndim != 2]
    return Muon(matrices, lr=0.02), torch.optim.AdamW(rest, lr=0.01)


def test_together_steps_exactly_like_its_parts_apart(model, weights, same):
    apart = copy.deepcopy(model)
    together, parts = Together(*pair(model)), pair(apart)
    for step in range(5):
        for group in [*together.param_groups, *(g for part in parts for g in part.param_groups)]:
            group["lr"] *= 0.9  # as a scheduler does
        fill_gradients(model, step)
        fill_gradients(apart, step)
        together.step()
        for part in parts:
            part.step()
    assert same(weights(model), weights(apart))
    state = {id(p): together.state[p] for p in model.parameters()}
    for mine, theirs in zip(model.parameters(), apart.parameters(), strict=True):
        part = next(part for part in parts if theirs in part.state)
        assert same(dict(state[id(mine)]), dict(part.state[theirs]))


@pytest.mark.parametrize("kind", ["adamw", "muon"])
def test_a_loaded_optimizer_goes_on_as_if_nothing_had_happened(kind, model, weights, same):
    recipe = Recipe(optimizer=kind)
    optimizer = make_optimizer(model, recipe)
    for step in range(3):
        fill_gradients(model, step)
        optimizer.step()
    file = io.BytesIO()
    torch.save(optimizer.state_dict(), file)
    file.seek(0)
    other = copy.deepcopy(model)
    again = make_optimizer(other, recipe)
    again.load_state_dict(torch.load(file, weights_only=True))
    for step in range(3, 6):
        for each, its in ((model, optimizer), (other, again)):
            fill_gradients(each, step)
            for group in its.param_groups:
                group["lr"] *= 0.5
            its.step()
    assert same(weights(model), weights(other))
    assert same(optimizer.state_dict(), again.state_dict())


def test_together_clears_gradients_and_calls_closures(model):
    together = Together(*pair(model))
    fill_gradients(model, 0)
    together.zero_grad()
    assert all(p.grad is None for p in model.parameters())
    assert together.step(lambda: 3.0) == 3.0
