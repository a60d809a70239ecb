"""Everything is computed on the device of its inputs.

There is no accelerator where the tests run, so one is simulated: its tensors have their values in the memory of the CPU
but say that they are on the device ``meta``, and whatever mixes them with tensors of the CPU fails as it would on CUDA.
"""

from dataclasses import fields, is_dataclass

import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from flexmdm import (
    CosineSchedule,
    FlexMDMInterpolant,
    LinearSchedule,
    Prompt,
    Ragged,
    Template,
    align,
    flexmdm_loss,
    generate,
    likelihood,
    sample_times,
)
from flexmdm.backbones.denoiser import NetworkDenoiser
from flexmdm.backbones.dit import DiT

ACCELERATOR = torch.device("meta")
aten = torch.ops.aten


class Remote(torch.Tensor):
    """A tensor on the accelerator; ``here`` has its values."""

    here: torch.Tensor

    @staticmethod
    def __new__(cls, here):
        remote = torch.Tensor._make_wrapper_subclass(
            cls, here.shape, here.stride(), here.storage_offset(), dtype=here.dtype, device=ACCELERATOR
        )
        remote.here = here
        return remote

    @classmethod
    def __torch_dispatch__(cls, operation, types, args=(), kwargs=None):
        return run(operation, args, kwargs or {})


def run(operation, args, kwargs):
    """Run an operation where its tensors are; only copies, and numbers from the CPU, go from one device to another."""
    tensors = [x for x in tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor)]
    remote = {id(x.here): x for x in tensors if isinstance(x, Remote)}
    local = [x for x in tensors if not isinstance(x, Remote)]
    if remote and operation not in (aten._to_copy.default, aten.copy_.default):
        strays = [tuple(x.shape) for x in local if x.ndim]
        assert not strays, f"{operation} mixes tensors of the accelerator with {strays} of the CPU"
    device = kwargs.get("device")
    goes_away = bool(remote) if device is None else torch.device(device) == ACCELERATOR
    if device is not None:
        kwargs = {**kwargs, "device": torch.device("cpu")}
    out = operation(*tree_map(_here, args), **tree_map(_here, kwargs))

    def put(x):
        if not isinstance(x, torch.Tensor) or any(x is y for y in local):  # a number; or changed in place
            return x
        return remote[id(x)] if id(x) in remote else Remote(x) if goes_away else x

    return tree_map(put, out)


def _here(x):
    return x.here if isinstance(x, Remote) else x


class _Operations(TorchDispatchMode):
    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        return run(operation, args, kwargs or {})


class _Python(TorchFunctionMode):
    """What reaches into the memory of a tensor and never becomes an operation."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        if function is torch.Tensor.tolist:
            return _here(args[0]).tolist()
        if function in (torch.tensor, torch.as_tensor) and not isinstance(args[0], torch.Tensor):
            device = torch.device(kwargs.pop("device", None) or "cpu")
            return function(*args, **kwargs).to(device)
        return function(*args, **kwargs)


@pytest.fixture
def accelerator():
    with _Operations(), _Python():
        yield ACCELERATOR


def tensors(x):
    """All tensors in a result."""
    if isinstance(x, torch.Tensor):
        return [x]
    return [t for field in fields(x) for t in tensors(getattr(x, field.name))] if is_dataclass(x) else []


def assert_the_same_but_on_the_accelerator(remote, local):
    for a, b in zip(tensors(remote), tensors(local), strict=True):
        assert a.device == ACCELERATOR and b.device.type == "cpu"
        torch.testing.assert_close(_here(a), b, rtol=1e-3, atol=1e-4)


def network(insertions=True):
    torch.manual_seed(0)
    net = DiT(5, hidden=16, layers=1, heads=2, condition=8, insertions=insertions)
    for p in net.parameters():
        torch.nn.init.normal_(p, std=0.3)
    return net


X1 = [[1, 2, 3, 4, 1], [2, 0], []]
INTERPOLANT = FlexMDMInterpolant(CosineSchedule(), LinearSchedule())


def states(device, kind="free"):
    x1 = Ragged.from_lists(X1, device=device)
    template = Template.fixed(x1, x1.columns % 3 == 0) if kind == "fixed" else getattr(Template, kind)(x1)
    t, _ = sample_times(len(x1), device=device)
    return INTERPOLANT.sample(x1, t, template, mask_id=5)


def test_the_simulated_accelerator_computes_and_objects_to_tensors_of_the_cpu(accelerator):
    x = torch.arange(3, device=accelerator)
    assert x.device == accelerator and (2 * x + 1).tolist() == [1, 3, 5] and int(x.sum()) == 3
    x[1:] += 1
    assert x.tolist() == [0, 2, 3] and x.to("cpu").device.type == x.cpu().device.type == "cpu"
    for mixture in (lambda: x + torch.arange(3), lambda: x[torch.tensor([0])], lambda: torch.cat([x, torch.ones(1)])):
        with pytest.raises(AssertionError, match="mixes"):
            mixture()


@pytest.mark.parametrize("kind", ["free", "masks", "fixed"])
def test_states_alignments_and_losses(accelerator, kind):
    def computed(device):
        s = states(device, kind)
        alignment = align(s.canvas, s.x1, s.template)
        with torch.no_grad():
            prediction = NetworkDenoiser(network().to(device), 5, 5)(s.canvas, s.alpha)
        return [s, alignment, prediction, *(flexmdm_loss(prediction, s, INTERPOLANT, a) for a in (None, alignment))]

    for remote, local in zip(computed(accelerator), computed("cpu"), strict=True):
        assert_the_same_but_on_the_accelerator(remote, local)


def test_what_was_made_on_the_cpu_can_be_moved(accelerator):
    s = states("cpu")
    alignment = align(s.canvas, s.x1)
    for made in (s, s.canvas, s.template, alignment):
        assert_the_same_but_on_the_accelerator(made.to(accelerator), made)


@pytest.mark.parametrize("insertions", [True, False])
def test_gradients(accelerator, insertions):
    def gradients(device):
        net, canvas = network(insertions).to(device).eval(), states(device).canvas
        alpha = torch.full((3,), 0.4, device=device)
        logits, g = net(canvas.tokens.values, canvas.lengths, canvas.given.values, canvas.open_gaps.values, alpha)
        return torch.autograd.grad(logits.square().sum() + g.sum(), list(net.parameters()))

    for remote, local in zip(gradients(accelerator), gradients("cpu"), strict=True):
        assert_the_same_but_on_the_accelerator(remote, local)


@pytest.mark.parametrize("sampler", ["tau", "adaptive", "spaced", "low_confidence"])
def test_generation(accelerator, sampler):
    prompts = [Prompt.masks(4)] if sampler == "low_confidence" else [Prompt.prefix([1]), Prompt.masks(3)]
    options = {"prompts": prompts, "sampler": sampler, "steps": 4, "max_length": 6, "seed": 3, "trace": True}

    def generated(device):
        denoiser = NetworkDenoiser(network().to(device), 5, 4, INTERPOLANT)  # the mask lies inside the vocabulary
        where = []
        out = generate(denoiser, callback=lambda progress: where.append(progress.canvas.device.type), **options)
        assert set(where) == {torch.device(device).type}
        return out.sequences

    assert generated(accelerator) == generated("cpu")


@pytest.mark.parametrize("exact", [True, False])
def test_likelihood(accelerator, exact):
    def nats(device):
        denoiser = NetworkDenoiser(network().to(device), 5, 5)
        return likelihood(denoiser, Ragged.from_lists([[1, 2], []], device=device), num_times=4, exact=exact).nats

    assert_the_same_but_on_the_accelerator(nats(accelerator), nats("cpu"))
