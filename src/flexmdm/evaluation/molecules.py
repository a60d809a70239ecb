"""Validity, uniqueness and novelty of generated molecules; and molecules with a gap, to be filled.

It needs RDKit. Strings are SMILES; two of them are the same molecule if their canonical forms are equal.

>>> _ = __import__("pytest").importorskip("rdkit")
>>> score = judge(["CCO", "OCC", "c1ccccc1", "C1CC", ""], training=canonical_set(["CCO"]))
>>> score.valid.value, round(score.unique, 2), score.novel.value  # 3 of 5, 2 of 3, 1 of 2
(0.6, 0.67, 0.5)
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from flexmdm.evaluation.intervals import Interval, rate


@dataclass(frozen=True)
class MoleculeScore:
    """The worth of generated strings as molecules: shares, with 95% Wilson intervals where strings count alone."""

    num: int  # strings there were
    valid: Interval  # of all strings, those that parse and make chemical sense
    unique: float  # of the valid, how many different molecules; it falls as num grows, so compare equal numbers
    novel: Interval  # of the different valid molecules, those that training has not seen


def judge(smiles: Sequence[str], training: AbstractSet[str]) -> MoleculeScore:
    """Score generated strings, given the `canonical_set` of those that the model learned from."""
    found = [form for form in map(canonical, smiles) if form is not None]
    different = set(found)
    return MoleculeScore(
        num=len(smiles),
        valid=rate(len(found), len(smiles)),
        unique=len(different) / len(found) if found else math.nan,
        novel=rate(len(different - training), len(different)),
    )


def canonical(smiles: str) -> str | None:
    """Return the canonical form of a molecule; ``None`` if the string is not a molecule."""
    try:
        import rdkit.Chem
        import rdkit.rdBase
    except ModuleNotFoundError as error:
        raise ValueError("molecules need RDKit, which is not installed: pip install 'flexmdm[eval]'") from error
    if not smiles or any(character.isspace() for character in smiles):  # RDKit takes what follows a blank for a name
        return None
    with rdkit.rdBase.BlockLogs():
        molecule = rdkit.Chem.MolFromSmiles(smiles)
        return None if molecule is None else rdkit.Chem.MolToSmiles(molecule)


def canonical_set(smiles: Iterable[str]) -> frozenset[str]:
    """Return the different molecules among strings, without those that are none. A million take some minutes."""
    return frozenset(form for form in map(canonical, smiles) if form is not None)


class Scaffold(NamedTuple):
    """A SMILES with a gap: ``before + removed + after`` is the molecule, ``before + after`` one without the branch."""

    before: str
    removed: str
    after: str

    @property
    def pieces(self) -> list[str]:
        """Return the fixed text on both sides of the gap."""
        return [self.before, self.after]


def scaffold_gaps(smiles: str, seed: int = 0) -> Scaffold | None:
    """Take a branch "(...)" out of a molecule, a random one of those without which it is still a molecule.

    ``scaffold_gaps("CC(=O)O")`` has the pieces ``["CC", "O"]``, and ``"(=O)"`` is removed. Give each molecule a seed of
    its own. A molecule without such a branch gives ``None``.
    """
    if canonical(smiles) is None:
        raise ValueError(f"{smiles!r} is not a molecule: only a valid SMILES can be cut")
    opened, cuts = [], []  # branches of branches as well
    for index, character in enumerate(smiles):
        if character == "(":
            opened.append(index)
        elif character == ")":
            start, end = opened.pop(), index + 1
            cuts.append(Scaffold(smiles[:start], smiles[start:end], smiles[end:]))
    cuts = [cut for cut in cuts if canonical(cut.before + cut.after) is not None]
    return cuts[np.random.default_rng(seed).integers(len(cuts))] if cuts else None
