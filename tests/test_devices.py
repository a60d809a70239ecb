"""Everything is computed on the device of its inputs, and next to a device without float64 what needs it on the CPU.

There is no accelerator where the tests run, so one is simulated: its tensors have their values in the memory of the CPU
but say that they are on the device ``meta``, and whatever mixes them with tensors of the CPU fails as it would on CUDA.
A second one has no float64, and fails as MPS does.
"""

from dataclasses import fields, is_dataclass, replace

import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from flexmdm import (
    Canvas,
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
    precision,
    sample_times,
)
from flexmdm.backbones.dit import DiT
from flexmdm.backbones.model import NetworkDenoiser
from flexmdm.training.collation import Batch

ACCELERATOR = torch.device("meta")
aten = torch.ops.aten


class Remote(torch.Tensor):
    """A tensor on the accelerator; ``here`` has its values."""

    here: torch.Tensor
    has_float64 = True

    @staticmethod
    def __new__(cls, here):
        _check(here.dtype)
        remote = torch.Tensor._make_wrapper_subclass(
            cls, here.shape, here.stride(), here.storage_offset(), dtype=here.dtype, device=ACCELERATOR
        )
        remote.here = here
        return remote

    @classmethod
    def __torch_dispatch__(cls, operation, types, args=(), kwargs=None):
        return run(operation, args, kwargs or {})


def _check(dtype):
    if dtype == torch.float64 and not Remote.has_float64:
        raise TypeError(
            "Cannot convert a MPS Tensor to float64 dtype as the MPS framework doesn't support float64. "
            "Please use float32 instead."
        )


def run(operation, args, kwargs):
    """Run an operation where its tensors are; only copies, and numbers from the CPU, go from one device to another."""
    tensors = [x for x in tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor)]
    remote = {id(x.here): x for x in tensors if isinstance(x, Remote)}
    local = [x for x in tensors if not isinstance(x, Remote)]
    if remote and operation not in (aten._to_copy.default, aten.copy_.default):
        strays = [tuple(x.shape) for x in local if x.ndim]
        assert not strays, f"{operation} mixes tensors of the accelerator with {strays} of the CPU"
    if remote:
        _check(kwargs.get("dtype"))  # also on the way to the CPU: the conversion comes before the copy
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


@pytest.fixture
def single(accelerator, monkeypatch):
    """The accelerator without float64."""
    monkeypatch.setattr(Remote, "has_float64", False)
    monkeypatch.setattr(precision, "_WITHOUT_FLOAT64", (accelerator.type,))
    return accelerator


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


@pytest.mark.parametrize(
    "sampler", ["tau", "adaptive", "spaced", "entropy_bounded", "dilated", "likeliest", "low_confidence"]
)
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


# Without float64 ------------------------------------------------------------------------------------------------------


def test_the_simulated_accelerator_without_float64_refuses_it(single):
    x = torch.arange(3.0, device=single)
    assert x.device == single and (x / 2).dtype == torch.float32 and x.cpu().double().dtype == torch.float64
    float64 = torch.ones(3, dtype=torch.float64)
    assert float64.to(single, torch.float32).tolist() == float64.to(x).tolist() == [1, 1, 1]
    for refused in (
        lambda: float64.to(single),
        lambda: x.double(),
        lambda: x.to("cpu", torch.float64),
        lambda: torch.zeros(2, dtype=torch.float64, device=single),
        lambda: torch.tensor([0.5], dtype=torch.float64, device=single),
        lambda: FlexMDMInterpolant().sample(Ragged.from_lists([[1]], device=single), 0.5),
    ):
        with pytest.raises(TypeError, match="float64"):
            refused()


def a_batch(marginalised, **changes):
    s = replace(states("cpu", "fixed"), **changes)
    return Batch(s, align(s.canvas, s.x1, s.template) if marginalised else None, sample_times(len(s.x1))[1])


@pytest.mark.parametrize("marginalised", [True, False])
def test_a_batch_is_learned_from_without_float64(single, marginalised):
    def learned(device):
        net, batch = network().to(device).eval(), a_batch(marginalised).to(device)
        inputs = batch.inputs(5)
        assert {x.device for x in inputs.values()} == {torch.device(device)}
        loss = batch.loss(*net(**inputs), INTERPOLANT)
        return [loss, *torch.autograd.grad(loss.total.mean(), list(net.parameters()))]

    for remote, local in zip(learned(single), learned("cpu"), strict=True):
        assert_the_same_but_on_the_accelerator(remote, local)


def test_times_that_float32_takes_for_1_have_a_finite_loss_without_float64(single):
    late = 1 - torch.tensor([1e-9, 1e-10, 1e-12], dtype=torch.float64)

    def loss(device):
        batch = a_batch(marginalised=True, t=late).to(device)
        with torch.no_grad():
            return batch.loss(*network().to(device).eval()(**batch.inputs(5)), FlexMDMInterpolant())

    assert bool((late.float() == 1).all()) and bool(torch.isfinite(loss("cpu").total).all())
    assert_the_same_but_on_the_accelerator(loss(single), loss("cpu"))


@pytest.mark.parametrize(
    ("sampler", "confidence"),
    [("tau", None), ("adaptive", "left_to_right"), ("spaced", "random"), ("low_confidence", None)],
)
def test_generation_without_float64(single, sampler, confidence):
    prompts = [Prompt.masks(4)] if sampler == "low_confidence" else [Prompt.prefix([1]), Prompt.masks(3)]
    options = {"prompts": prompts, "sampler": sampler, "steps": 4, "max_length": 6, "seed": 3, "trace": True}

    def generated(network_device, device=None):
        denoiser = NetworkDenoiser(network().to(network_device), 5, 4, INTERPOLANT)
        out = generate(denoiser, 2, confidence=confidence, top_p=0.9, device=device, **options)
        return out.sequences, out.evaluations, out.trace

    assert generated(single) == generated(single, device=single) == generated("cpu")


def test_generation_goes_on_from_what_is_on_a_device_without_float64(single):
    memory = torch.zeros(2, 2, dtype=torch.float64)
    canvas = Canvas(Ragged.from_lists([[1, 5], [5, 5, 2]]), mask_id=5, memory=memory)
    alpha = torch.tensor([0.25, 0.5])

    def generated(device):
        denoiser = NetworkDenoiser(network().to(device), 5, 5)
        return generate(denoiser, 3, canvas=canvas.to(device), alpha=alpha.to(device), max_length=8).sequences

    assert generated(single) == generated("cpu")


@pytest.mark.parametrize("exact", [True, False])
def test_likelihood_without_float64(single, exact):
    def nats(device):
        denoiser = NetworkDenoiser(network().to(device), 5, 5)
        return likelihood(denoiser, Ragged.from_lists([[1, 2], []], device=device), num_times=4, exact=exact).nats

    torch.testing.assert_close(nats(single), nats("cpu"))


def test_a_network_answers_where_the_canvas_is(single):
    s = states("cpu")
    elsewhere, here = (NetworkDenoiser(network().to(device), 5, 5)(s.canvas, s.alpha) for device in (single, "cpu"))
    for a, b in zip(tensors(elsewhere), tensors(here), strict=True):
        assert a.device.type == "cpu"
        torch.testing.assert_close(a, b)
