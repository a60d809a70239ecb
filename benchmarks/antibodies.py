"""Antibodies: two pretrained encoders as bases, and how well each predicts masked residues before any training.

AntiBERTy (a BERT of 25.8M weights) and Sapiens (a RoBERTa of 0.6M weights for each chain) come with packages on PyPI,
both under the MIT licence. Their wheels become folders that `flexmdm retrofit` and `flexmdm train --from` take; nothing
in them is unpickled but tensors. The chains are the user's own: a folder with test.csv or test.csv.gz, whose columns
are sequence and, for each loop, where it begins and ends (h1_start, h1_end and so on, half-open).

  pip download --no-deps -d wheels antiberty==0.1.3 sapiens==1.0.5
  python benchmarks/antibodies.py bases wheels bases
  python benchmarks/antibodies.py accuracy bases/antiberty bases/sapiens-vh --data path/to/chains
"""

from __future__ import annotations

import argparse
import csv
import gzip
import io
import json
import re
from collections.abc import Iterator
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple
from zipfile import ZipFile

import torch
from torch import Tensor
from transformers import AutoModelForMaskedLM, RobertaConfig, RobertaForMaskedLM

from flexmdm import Canvas, Ragged
from flexmdm.backbones.retrofit import retrofit
from flexmdm.data import TextTokenizer
from flexmdm.evaluation.intervals import rate
from flexmdm.progress import ProgressBar
from flexmdm.training.models import quiet_transformers

RESULTS = Path(__file__).parent / "results"
REGIONS = ("framework", "CDR-H1", "CDR-H2", "CDR-H3")
LOOPS = ("h1", "h2", "h3")  # in the columns of a table
SHARE, SEED, BATCH = 0.15, 0, 64  # of masked residues

# Bases ----------------------------------------------------------------------------------------------------------------

_ANTIBERTY = "antiberty/trained_models/"
_SAPIENS = "sapiens/models/v1/"
_FIRST = ("<s>", "<pad>", "</s>", "<unk>")  # ahead of what a dictionary of fairseq lists; <mask> is behind it
_ENCODER = r"decoder\.sentence_encoder\."
_LAYER = _ENCODER + r"layers\.(\d+)\."
_HERE = r"roberta.encoder.layer.\1."
_NAMES = {  # of weights, in fairseq and in transformers
    _ENCODER + r"embed_tokens": "roberta.embeddings.word_embeddings",
    _ENCODER + r"embed_positions": "roberta.embeddings.position_embeddings",
    _ENCODER + r"emb_layer_norm": "roberta.embeddings.LayerNorm",
    _LAYER + r"self_attn\.q_proj": _HERE + "attention.self.query",
    _LAYER + r"self_attn\.k_proj": _HERE + "attention.self.key",
    _LAYER + r"self_attn\.v_proj": _HERE + "attention.self.value",
    _LAYER + r"self_attn\.out_proj": _HERE + "attention.output.dense",
    _LAYER + r"self_attn_layer_norm": _HERE + "attention.output.LayerNorm",
    _LAYER + r"fc1": _HERE + "intermediate.dense",
    _LAYER + r"fc2": _HERE + "output.dense",
    _LAYER + r"final_layer_norm": _HERE + "output.LayerNorm",
    r"decoder\.lm_head\.(dense|layer_norm)": r"lm_head.\1",
    r"decoder\.lm_head": "lm_head.decoder",
}


def write_bases(wheels: Path, out: Path) -> list[Path]:
    """Write a folder for each base whose wheel is there; return the folders."""
    written = []
    for wheel in sorted(wheels.glob("*.whl")):
        with ZipFile(wheel) as archive:
            if wheel.name.startswith("antiberty-"):
                written.append(_antiberty(archive, out / "antiberty"))
            elif wheel.name.startswith("sapiens-"):
                written += [_sapiens(archive, chain, out / f"sapiens-{chain}") for chain in ("vh", "vl")]
    if not written:
        raise SystemExit(f"{wheels} has no wheel of antiberty or sapiens: see --help for how to fetch them")
    return written


def _antiberty(archive: ZipFile, out: Path) -> Path:
    """Write AntiBERTy, whose files are those of transformers as they are."""
    out.mkdir(parents=True, exist_ok=True)
    for name in ("AntiBERTy_md_smooth/config.json", "AntiBERTy_md_smooth/pytorch_model.bin", "vocab.txt"):
        (out / Path(name).name).write_bytes(archive.read(_ANTIBERTY + name))
    return out


def _sapiens(archive: ZipFile, chain: str, out: Path) -> Path:
    """Write Sapiens for one chain, a checkpoint of fairseq, as the RoBERTa of transformers that it is."""
    with torch.serialization.safe_globals([argparse.Namespace]):
        data = io.BytesIO(archive.read(f"{_SAPIENS}checkpoint_{chain}.pt"))
        stored = torch.load(data, map_location="cpu", weights_only=True)
    lines = archive.read(_SAPIENS + "dict.txt").decode().splitlines()
    tokens = [*_FIRST, *(line.split()[0] for line in lines), "<mask>"]
    weights = {_renamed(name): value for name, value in stored["model"].items()}
    positions, hidden = weights["roberta.embeddings.position_embeddings.weight"].shape
    layers = {name.split(".")[3] for name in weights if name.startswith("roberta.encoder.layer.")}
    config = RobertaConfig(
        vocab_size=len(tokens), hidden_size=hidden, num_hidden_layers=len(layers),
        num_attention_heads=stored["args"].encoder_attention_heads, max_position_embeddings=positions,
        intermediate_size=len(weights["roberta.encoder.layer.0.intermediate.dense.bias"]), type_vocab_size=1,
        bos_token_id=0, pad_token_id=1, eos_token_id=2, mask_token_id=len(tokens) - 1,
    )  # fmt: skip
    weights["roberta.embeddings.token_type_embeddings.weight"] = torch.zeros(1, hidden)  # fairseq has none
    weights["lm_head.bias"] = weights["lm_head.decoder.bias"]
    model = RobertaForMaskedLM(config)
    model.load_state_dict(weights)
    model.save_pretrained(out)
    TextTokenizer.of_characters({token: number for number, token in enumerate(tokens)}).save(out)
    return out


def _renamed(name: str) -> str:
    """Return what transformers calls a weight of fairseq."""
    module, _, kind = name.rpartition(".")
    theirs, ours = next(pair for pair in _NAMES.items() if re.fullmatch(pair[0], module))
    return f"{re.sub(theirs, ours, module)}.{kind}"


# Accuracy -------------------------------------------------------------------------------------------------------------


class Chain(NamedTuple):
    """A chain, and the region of each of its residues as an index into ``REGIONS``."""

    sequence: str
    regions: tuple[int, ...]


def chains_of(folder: Path, name: str, num: int | None = None) -> list[Chain]:
    """Read the first chains of a table, or all of them."""
    files = [folder / f"{name}.csv", folder / f"{name}.csv.gz"]
    file = next((file for file in files if file.is_file()), None)
    if file is None:
        raise SystemExit(f"{folder} has no {name}.csv or {name}.csv.gz: --data names the folder with the chains")
    with gzip.open(file, "rt") if file.suffix == ".gz" else file.open() as lines:
        return [_chain(row) for row in islice(csv.DictReader(lines), num)]


def _chain(row: dict[str, str]) -> Chain:
    regions = [0] * len(row["sequence"])
    for number, loop in enumerate(LOOPS, 1):
        for place in range(int(row[f"{loop}_start"]), int(row[f"{loop}_end"])):
            regions[place] = number
    return Chain(row["sequence"], tuple(regions))


class Batch(NamedTuple):
    """Chains with masks, and what is behind the masks."""

    canvas: Canvas
    residues: Tensor  # [M]
    regions: Tensor  # [M]


def batches(chains: list[Chain], tokenizer: TextTokenizer, mask: int, framed: bool) -> Iterator[Batch]:
    """Yield the chains with some residues masked, each time the same, with or without the tokens around them."""
    rng = torch.Generator().manual_seed(SEED)
    before, behind = tokenizer.frame if framed else ((), ())
    for start in range(0, len(chains), BATCH):
        some = chains[start : start + BATCH]
        tokens, hidden, regions = [], [], []
        for chain, ids in zip(some, tokenizer.encode([chain.sequence for chain in some]), strict=True):
            chosen = torch.rand(len(ids), generator=rng) < SHARE
            hidden.append(torch.tensor(ids)[chosen])
            regions.append(torch.tensor(chain.regions)[chosen])
            tokens.append([*before, *torch.tensor(ids).masked_fill(chosen, mask).tolist(), *behind])
        entries = Ragged.from_lists(tokens)
        closed = torch.zeros(len(entries.values) + len(entries), dtype=torch.bool)
        given = torch.ones_like(entries.values, dtype=torch.bool)
        yield Batch(Canvas(entries, mask, given, closed), torch.cat(hidden), torch.cat(regions))


def measured(base: Path, chains: list[Chain], framed: bool) -> dict[str, Any]:
    """Return the share of masked residues that a retrofitted base predicts right, by region, and the nats of each."""
    model, tokenizer = retrofit(base), TextTokenizer.named(str(base))
    denoiser = model.denoiser()
    right, count, nats = (torch.zeros(len(REGIONS), dtype=torch.float64) for _ in range(3))
    with ProgressBar(f"{base.name}, {'with' if framed else 'without'} tokens around", len(chains)) as bar:
        for number, batch in enumerate(batches(chains, tokenizer, model.config.mask_id, framed)):
            clock = torch.full((len(batch.canvas),), 1 - SHARE)
            log_probs = denoiser(batch.canvas, clock).log_probs
            found = (log_probs.argmax(1) == batch.residues).double()
            lost = -log_probs.gather(1, batch.residues[:, None])[:, 0].double()
            for total, values in ((right, found), (count, torch.ones_like(found)), (nats, lost)):
                total.index_add_(0, batch.regions, values)
            bar.update(min((number + 1) * BATCH, len(chains)))
    shares = {name: asdict(rate(int(right[i]), int(count[i]))) for i, name in enumerate(REGIONS) if count[i]}
    total = float(nats.sum() / count.sum())
    return {"accuracy": shares, "nats": total, "difference": largest_difference(base, chains, framed)}


@torch.no_grad()
def largest_difference(base: Path, chains: list[Chain], framed: bool) -> float:
    """Return the largest difference between log-probabilities of the retrofitted base and of its own class."""
    theirs = AutoModelForMaskedLM.from_pretrained(base).double().eval()
    model, tokenizer = retrofit(base).double(), TextTokenizer.named(str(base))
    mask, differences = model.config.mask_id, [0.0]
    for batch in batches(chains[:BATCH], tokenizer, mask, framed):
        ours = model.denoiser()(batch.canvas, torch.full((len(batch.canvas),), 0.5)).log_probs
        alone = [theirs(tokens[None]).logits[0, tokens == mask] for tokens in batch.canvas.tokens.split()]
        other = torch.cat(alone).index_fill(1, torch.tensor([mask]), -torch.inf).log_softmax(1)
        differences.append(float((ours - other)[other.isfinite()].abs().max()))
    return max(differences)


def markdown(results: dict[str, Any]) -> str:
    """Return the results as a page."""
    lines = [
        "# Masked residues of antibodies, predicted by encoders before any training",
        "",
        f"{SHARE:.0%} of the residues of held-out heavy chains are masked, seed {SEED}; the retrofitted model predicts "
        "each as its base does. Shares with 95% intervals. *Around*: whether the tokens that the base has learned "
        "with stand before and behind each chain. *Difference*: the largest one between log-probabilities of the "
        "retrofitted model and of the base's own class, on the first chains, in double precision.",
        "",
        "| base | around | chains | " + " | ".join(REGIONS) + " | nats per residue | difference |",
        "|---|---|---|" + "---|" * (len(REGIONS) + 2),
    ]
    for row in results["rows"]:
        shares = [row["accuracy"].get(region) for region in REGIONS]
        told = ["-" if s is None else f"{s['value']:.3f} ({s['low']:.3f}-{s['high']:.3f})" for s in shares]
        lines.append(
            f"| {row['base']} | {'yes' if row['framed'] else 'no'} | {row['chains']:,} | {' | '.join(told)} | "
            f"{row['nats']:.3f} | {row['difference']:.0e} |"
        )
    return "\n".join([*lines, "", f"Made by `{results['command']}`.", ""])


def main() -> None:
    """Write bases, or measure and write benchmarks/results/antibodies.{json,md}."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    making = commands.add_parser("bases", help="write the bases that wheels hold")
    making.add_argument("wheels", type=Path, help="folder with the wheels")
    making.add_argument("out", type=Path, help="folder for the bases")
    measuring = commands.add_parser("accuracy", help="measure how well masked residues are predicted")
    measuring.add_argument("bases", type=Path, nargs="+")
    measuring.add_argument("--data", type=Path, required=True, help="folder with test.csv or test.csv.gz")
    measuring.add_argument("--num", type=int, help="number of chains [default: all]")
    measuring.add_argument("--fresh", action="store_true", help="measure everything again")
    arguments = parser.parse_args()
    quiet_transformers()
    if arguments.command == "bases":
        print("\n".join(map(str, write_bases(arguments.wheels, arguments.out))))
        return
    chains = chains_of(arguments.data, "test", arguments.num)
    file = RESULTS / "antibodies.json"
    results = json.loads(file.read_text()) if file.is_file() and not arguments.fresh else {"rows": []}
    names = " ".join(f"bases/{base.name}" for base in arguments.bases)
    num = f" --num {arguments.num}" if arguments.num else ""
    results["command"] = f"python benchmarks/antibodies.py accuracy {names} --data FOLDER{num}"
    for base in arguments.bases:
        for framed in (True, False):
            asked = {"base": base.name, "framed": framed, "chains": len(chains)}
            if not any(asked.items() <= row.items() for row in results["rows"]):
                results["rows"].append(asked | measured(base, chains, framed))
                file.write_text(json.dumps(results, indent=1) + "\n")
                file.with_suffix(".md").write_text(markdown(results))
    print(markdown(results))


if __name__ == "__main__":
    main()
