"""`flexmdm retrofit` and `flexmdm train --from`, from the outside."""

import json

import pytest


@pytest.fixture(scope="module")
def words(tmp_path_factory):
    file = tmp_path_factory.mktemp("data") / "words.txt"
    file.write_text("".join(f"{'ab' * (n % 4 + 1)}{'c' * (n % 3)}\n" for n in range(120)))
    return file


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    """Of all runs here: three steps in LLaDA's shape."""
    file = tmp_path_factory.mktemp("config") / "tiny.toml"
    file.write_text(
        '[task]\nname = "text"\n[network]\narchitecture = "llada"\nhidden = 16\nlayers = 2\nheads = 2\ngroups = 2\n'
        "[recipe]\nsteps = 3\nbatch_size = 8\nwarmup = 1\neval_every = 3\neval_size = 8\nsave_every = 3\n"
    )
    return file


@pytest.fixture(scope="module")
def mdm(trained, words, config):
    return trained("mdm", "train", words, "--config", config, "--model", "mdm")


def test_a_run_is_retrofitted_resumed_sampled_and_merged(mdm, words, config, tmp_path, command):
    run, merged = tmp_path / "flex", tmp_path / "merged"
    settings = ["--config", config, "--lora-rank", 2, "--held-out", 0.1]
    assert command("retrofit", mdm, "--data", words, words, *settings, "--out", run)[2] == 0
    assert json.loads((run / "run.json").read_text())["task"]["data"] == [str(words), str(words)]
    _, errors, code = command("retrofit", "--out", run, "--resume", "--steps", 4)
    assert code == 0 and "going on from step 3" in errors
    assert command("retrofit", run, "--merge", "--out", merged)[2] == 0
    (first, _, code), (second, _, _) = (command("sample", place, "--num", 3, "--steps", 4) for place in (run, merged))
    assert code == 0 and first == second and first
    assert "has no adapters to merge" in command("retrofit", merged, "--merge", "--out", tmp_path / "again")[1]
    stored = json.loads((run / "config.json").read_text())
    (run / "config.json").write_text(json.dumps(stored | {"base": str(tmp_path / "elsewhere")}))
    _, errors, code = command("sample", run)
    assert code == 2 and f"the adapters of {run} need the weights they were trained on" in errors
    assert 'write where as "base" in' in errors


def test_a_run_is_retrofitted_by_its_own_recipe_on_its_own_data(mdm, tmp_path, command):
    assert command("retrofit", mdm, "--out", tmp_path / "flex")[2] == 0
    before, after = (json.loads((run / "run.json").read_text()) for run in (mdm, tmp_path / "flex"))
    assert after["recipe"] == before["recipe"] and after["task"]["data"] == before["task"]["data"]
    assert (before["task"]["model"], after["task"]["model"]) == ("mdm", "flexmdm")
    assert command("sample", tmp_path / "flex", "--num", 2, "--steps", 4)[2] == 0


def test_what_a_run_is_resumed_with_is_looked_at(mdm, tmp_path, command, words):
    run = tmp_path / "flex"
    assert command("retrofit", mdm, "--data", words, words, "--lora-rank", 2, "--out", run)[2] == 0
    stored = json.loads((run / "run.json").read_text())
    assert stored["task"]["balanced"] and stored["network"]["base"] == str(mdm.resolve())
    assert json.loads((run / "config.json").read_text())["lora"]["alpha"] == 2
    _, errors, code = command("retrofit", tmp_path, "--out", run, "--resume", "--steps", 4)
    assert code == 2 and f"the run was started from {mdm}" in errors
    _, errors, code = command("retrofit", "--out", tmp_path / "nowhere", "--resume")
    assert code == 2 and "there is no such folder" in errors
    _, errors, code = command("retrofit", run, "--steps", 3, "--out", tmp_path / "more")
    assert code == 0 and "is a FlexMDM already" in errors


def test_a_run_is_written_as_a_checkpoint_of_llada(mdm, tmp_path, command):
    from flexmdm.backbones.retrofit import RetrofitModel, load_base

    assert command("retrofit", mdm, "--as-llada", "--out", tmp_path / "llada")[2] == 0
    stored = json.loads((tmp_path / "llada" / "config.json").read_text())
    assert stored["model_type"] == "llada" and (tmp_path / "llada" / "tokenizer.json").is_file()
    head = RetrofitModel.from_pretrained(mdm).network.head.weight
    assert load_base(tmp_path / "llada").parts.head.weight.equal(head)


def test_a_small_run_is_planned_as_a_training(mdm, command, monkeypatch):
    monkeypatch.setattr("flexmdm.runs.planning.seconds_per_step", lambda *_: 7.0)
    out, errors, code = command("retrofit", mdm, "--dry-run")
    assert code == 0 and "about 7.00 s per step" in out, errors


def test_who_starts_from_a_run_learns_by_its_recipe(mdm, words, tmp_path, command):
    assert command("train", words, "--from", mdm, "--out", tmp_path / "run")[2] == 0
    before, after = (json.loads((run / "run.json").read_text())["recipe"] for run in (mdm, tmp_path / "run"))
    assert before == after
    _, errors, code = command("train", words, "--from", mdm, "--size", "small", "--out", tmp_path / "x")
    assert code == 2 and "--size is for a new network" in errors


def test_a_base_brings_its_tokens_and_its_network_whatever_a_configuration_says(mdm, words, tmp_path, command):
    config = tmp_path / "other.toml"
    config.write_text(
        '[task]\nname = "text"\ntokenizer = "bpe"\nvocabulary = 300\n[network]\nhidden = 64\nlayers = 1\n'
        "[recipe]\nsteps = 2\nbatch_size = 8\nwarmup = 1\neval_size = 8\n"
    )
    start = ["train", words, "--config", config, "--from", mdm]
    _, errors, code = command(*start, "--out", tmp_path / "run")
    assert code == 0 and f"{mdm} has its own tokenizer, vocabulary, hidden, layers: not those of {config}" in errors
    task = json.loads((tmp_path / "run" / "run.json").read_text())["task"]
    assert (task["tokenizer"], task["vocabulary"]) == (str(mdm), None)
    for option, message in [
        (["--vocab-size", 300], "only bpe has a vocabulary size to choose"),
        (["--hidden", 64, "--layers", 1], "--hidden, --layers is for a new network: with --from it is that of"),
    ]:
        _, errors, code = command(*start, *option, "--out", tmp_path / "other")
        assert code == 2 and message in errors


def test_the_8b_shape_is_counted_without_its_weights(tmp_path, command):
    out, _, _ = command("retrofit", "llada-8b", "--dry-run", "--json", tmp_path / "plan.json")
    assert "8.016B pretrained weights; 402.7M weights are trained" in out
    plan = json.loads((tmp_path / "plan.json").read_text())
    assert plan["weights"]["pretrained"] == 8_015_581_184
    assert plan["weights"]["trained_total"] == pytest.approx(403e6, rel=0.02)
    totals = [plan["memory_gb"][gpus]["total"] for gpus in ("1", "8", "16")]
    assert totals == sorted(totals, reverse=True)
    alone = plan["memory_gb"]["1"]  # 2 bytes of each frozen weight, 20 of each trained one
    assert alone["weights, gradients and moments"] == pytest.approx(8.0156 * 2 + 0.4027 * 20, abs=0.02)
    assert alone["while loading"] == pytest.approx(8.0156 * 2 + 0.4027 * 8, abs=0.02)


def test_answers_are_learned_by_a_model_that_starts_from_another(mdm, tmp_path, command):
    pairs, run = tmp_path / "pairs.jsonl", tmp_path / "sft"
    pairs.write_text(
        "".join(json.dumps({"prompt": "ab" * (n % 3 + 1), "answer": "c" * (n % 3 + 1)}) + "\n" for n in range(60))
    )
    settings = ["--task", "sft", "--steps", 3, "--batch-size", 8, "--from", mdm]
    _, errors, code = command("train", pairs, *settings, "--out", run)
    assert code == 2 and "that the tokenizer does not know: '\\n'" in errors and "--format" in errors
    settings += ["--format", "{prompt}"]
    assert command("train", pairs, *settings, "--out", run)[2] == 0
    options = ["--sampler", "adaptive", "--window", "5,64", "--steps", 4]
    assert command("complete", run, "abab", *options)[2] == 0
    for wrong in (["sample", run], ["infill", run, "a___b"]):
        assert "flexmdm complete" in command(*wrong)[1]
    assert "--window is two numbers such as 5,64" in command("complete", run, "ab", "--window", "5")[1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--out", "x"], "which model is to be retrofitted?"),
        (["nowhere", "--data", "a.txt", "--out", "x"], "there is no pretrained model 'nowhere'"),
        (["llada-8b", "--data", "a.txt", "--out", "x"], "a shape without weights"),
        (["nowhere", "--merge", "--out", "x"], "nowhere is not a run"),
        (
            ["--data", "nowhere", "a.txt", "--out", "x"],
            "a.txt is a file, and BASE is the folder or the name of a model",
        ),
        (["llama", "--data", "no.txt", "--out", "x"], "does not say which token is its mask"),  # before it reads data
        (["llama", "--data", "no.txt", "--mask-id", "9", "--out", "x"], "is outside its vocabulary of 9"),
        (["empty", "--data", "no.txt", "--out", "x"], "empty has no weights"),
        (["llama", "--data", "no.txt", "--mask-id", "8", "--four-bit", "--out", "x"], "4 bits need a GPU"),
        (["llama", "--four-bit", "--lora-rank", "0", "--out", "x"], "only adapters on them"),
    ],
)
def test_what_is_wrong_is_said(arguments, message, command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.txt").write_text("ab\n" * 9)
    for folder in ("llama", "empty"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "config.json").write_text(json.dumps({"model_type": "llama", "vocab_size": 9}))
    (tmp_path / "llama" / "model.safetensors").touch()
    _, errors, code = command("retrofit", *arguments)
    assert message in errors and code == 2


# Encoders -------------------------------------------------------------------------------------------------------------

LETTERS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abc"]


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    """The folder of a BERT with a token for each letter, and positions for 20."""
    from transformers import BertConfig, BertForMaskedLM

    folder = tmp_path_factory.mktemp("encoder")
    size = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
    config = BertConfig(vocab_size=len(LETTERS), max_position_embeddings=20, pad_token_id=0, **size)
    BertForMaskedLM(config).save_pretrained(folder)
    (folder / "vocab.txt").write_text("\n".join(LETTERS) + "\n")
    return folder


@pytest.mark.parametrize("asked", ["retrofit {base} --data {words}", "train {words} --from {base} --max-length 17"])
def test_an_encoder_becomes_a_flexmdm_with_its_own_tokens_around_every_text(encoder, words, tmp_path, command, asked):
    run, settings = tmp_path / "run", ["--lora-rank", 2, "--steps", 2, "--dtype", "float32", "--batch-size", 4]
    _, errors, code = command(*asked.format(base=encoder, words=words).split(), *settings, "--out", run)
    assert code == 0, errors
    stored = json.loads((run / "run.json").read_text())["task"]
    assert stored["framed"] and stored["max_length"] == 17  # [CLS], [SEP] and the end have positions too
    for arguments in (["sample", run, "--num", 6], ["infill", run, "a___b___c", "--num", 6, "--min", 1]):
        out, errors, code = command(*arguments, "--steps", 4)
        assert code == 0 and set(out) <= set("abc\n") and out.strip(), errors
    out, _, _ = command("infill", run, "a___c", "--num", 2)
    assert all(line.startswith("a") and line.endswith("c") for line in out.split())


def test_longer_texts_than_an_encoder_has_positions_for_are_refused_before_training(encoder, words, tmp_path, command):
    asked = ["retrofit", encoder, "--data", words, "--max-length", 18, "--out", tmp_path / "run"]
    _, errors, code = command(*asked, "--lora-rank", 0)
    assert code == 2 and "may have 20 entries" in errors and "has positions for 19" in errors
    assert "(--max-length 17)" in errors


def test_an_mdm_can_start_from_an_encoder_too(encoder, words, tmp_path, command):
    asked = ["train", words, "--from", encoder, "--model", "mdm", "--max-length", 12, "--out", tmp_path / "run"]
    _, errors, code = command(*asked, "--steps", 1)
    assert code == 2 and "PAD" in errors  # there is no row to spare in its table; it is not about what stands around
