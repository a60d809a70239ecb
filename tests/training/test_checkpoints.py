"""A checkpoint is used if it is whole to the last byte, and a damaged one costs no good one."""

from pathlib import Path

import pytest

from flexmdm.training.checkpoints import SEAL, checkpoints, fault, keep_latest, latest, seal, step_of, was_finished


@pytest.fixture
def run(tmp_path):
    """Three whole checkpoints; names are not in the order of the steps."""
    for step in (9, 10, 100):
        folder = tmp_path / f"checkpoint-{step}"
        folder.mkdir()
        (folder / "model.safetensors").write_bytes(bytes(range(256)) * step)
        (folder / "ema.safetensors").write_bytes(b"average" * step)
        seal(folder)
    return tmp_path


def truncate(folder):
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-1])


def flip(folder):
    file = folder / "model.safetensors"
    content = bytearray(file.read_bytes())
    content[1000] ^= 1
    file.write_bytes(content)


def replace_by_a_folder(folder):
    (folder / "ema.safetensors").unlink()
    (folder / "ema.safetensors").mkdir()


DAMAGES = {
    "truncated": (truncate, "model.safetensors is damaged"),
    "one bit": (flip, "model.safetensors is damaged"),
    "emptied": (lambda f: (f / "ema.safetensors").write_bytes(b""), "ema.safetensors is damaged"),
    "deleted": (lambda f: (f / "ema.safetensors").unlink(), "ema.safetensors is missing"),
    "unreadable": (replace_by_a_folder, "ema.safetensors cannot be read"),
    "no seal": (lambda f: (f / SEAL).unlink(), "it was not finished"),
    "empty seal": (lambda f: (f / SEAL).write_bytes(b""), "its seal cannot be read"),
    "cut seal": (lambda f: (f / SEAL).write_bytes((f / SEAL).read_bytes()[:20]), "its seal cannot be read"),
    "binary seal": (lambda f: (f / SEAL).write_bytes(b"\xff\xfe\x00\x80"), "its seal cannot be read"),
    "a list for a seal": (lambda f: (f / SEAL).write_text("[1, 2]"), "its seal is damaged"),
    "null for a seal": (lambda f: (f / SEAL).write_text("null"), "its seal is damaged"),
    "a seal of nothing": (lambda f: (f / SEAL).write_text("{}"), "its seal is damaged"),
}


def test_what_was_sealed_is_whole(run):
    assert [fault(folder) for folder in checkpoints(run)] == [None, None, None]


@pytest.mark.parametrize("name", DAMAGES)
def test_any_damage_is_found_and_named_and_the_one_before_is_taken(name, run):
    damage, words = DAMAGES[name]
    damage(run / "checkpoint-100")
    assert words in fault(run / "checkpoint-100")
    said = []
    assert latest(run, said.append) == run / "checkpoint-10"
    assert len(said) == 1 and "checkpoint-100 cannot be used" in said[0] and words in said[0]


def test_the_latest_is_the_one_with_most_steps(run):
    said = []
    assert latest(run, said.append) == run / "checkpoint-100" and not said
    assert [step_of(folder) for folder in checkpoints(run)] == [100, 10, 9]


def test_there_may_be_none(run, tmp_path):
    for folder in checkpoints(run):
        truncate(folder)
    said = []
    assert latest(run, said.append) is None and len(said) == 3
    assert latest(tmp_path / "nothing here") is None


def test_other_names_are_no_checkpoints(run):
    for name in ("checkpoint-best", "checkpoint-", "checkpoints-7", "checkpoint-7.new"):
        (run / name).mkdir()
    (run / "checkpoint-8").write_text("a file")
    assert len(checkpoints(run)) == 3
    keep_latest(run, 1)
    assert (run / "checkpoint-best").exists() and (run / "checkpoint-8").exists()


def test_the_latest_are_kept_and_the_rest_goes(run):
    keep_latest(run, 2)
    assert [step_of(folder) for folder in checkpoints(run)] == [100, 10]


@pytest.mark.parametrize("name", DAMAGES)
def test_a_damaged_checkpoint_never_displaces_a_whole_one(name, run):
    DAMAGES[name][0](run / "checkpoint-100")
    keep_latest(run, 2)
    assert [step_of(folder) for folder in checkpoints(run)] == [10, 9]


def test_a_checkpoint_that_was_killed_while_it_was_sealed_is_not_finished(run, monkeypatch):
    folder = run / "checkpoint-200"
    folder.mkdir()
    (folder / "model.safetensors").write_bytes(b"weights")

    def killed(*_):
        raise SystemExit

    monkeypatch.setattr(Path, "replace", killed)
    with pytest.raises(SystemExit):
        seal(folder)
    assert fault(folder) == "it was not finished" and not was_finished(folder)
    assert was_finished(run / "checkpoint-100")
