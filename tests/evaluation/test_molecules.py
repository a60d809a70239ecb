import sys

import pytest

from flexmdm.evaluation.molecules import canonical, canonical_set, judge, scaffold_gaps


def test_without_rdkit_the_error_says_how_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "rdkit", None)
    with pytest.raises(ValueError, match=r"pip install 'flexmdm\[eval\]'"):
        judge(["CCO"], set())


@pytest.fixture
def rdkit():
    return pytest.importorskip("rdkit")


def test_shares_by_hand(rdkit):
    strings = ["CCO", "OCC", "C(C)O", "c1ccccc1", "CCN", "CC(", "C1CC", "C(C)(C)(C)(C)C", "", "CCO x"]
    score = judge(strings, training=canonical_set(["OCC", "C1=CC=CC=C1"]))
    assert score.num == 10
    assert score.valid.value == 0.5
    assert score.unique == 0.6  # ethanol three times
    assert score.novel.value == pytest.approx(1 / 3)  # CCN alone
    assert 0.2 < score.valid.low < 0.5 < score.valid.high < 0.8


@pytest.mark.parametrize("string", ["", " ", "CCO name", "CCO\n", " CCO", "CC\0O", "c1cccc1", "banana", "日本"])
def test_no_molecule(rdkit, string):
    assert canonical(string) is None


def test_of_no_valid_molecule_nothing_is_known(rdkit):
    score = judge(["xyz"], set())
    assert score.valid.value == 0 and score.unique != score.unique
    assert (score.novel.low, score.novel.high) == (0.0, 1.0)


def test_rdkit_stays_quiet(rdkit, capfd):
    judge(["C1CC", "C(C)(C)(C)(C)C"], set())
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("smiles", ["CC(=O)O", "CC(C)Cc1ccc(C(C)C(=O)O)cc1", "O=C(Nc1ccccc1)C(F)(F)F"])
def test_pieces_and_the_gap_make_up_the_molecule(rdkit, smiles):
    cuts = {scaffold_gaps(smiles, seed) for seed in range(30)}
    for cut in cuts:
        assert cut.before + cut.removed + cut.after == smiles
        assert cut.pieces == [cut.before, cut.after] and canonical("".join(cut.pieces)) is not None
        assert cut.removed.startswith("(") and cut.removed.endswith(")")
    assert len(cuts) > 1 or smiles.count("(") == 1
    assert scaffold_gaps(smiles, seed=3) == scaffold_gaps(smiles, seed=3)


def test_what_cannot_be_cut(rdkit):
    assert scaffold_gaps("CCO") is None  # no branch
    assert scaffold_gaps("C1CC(C1)") is None  # without its branch the ring stays open
    with pytest.raises(ValueError, match="'C1CC' is not a molecule"):
        scaffold_gaps("C1CC")
