"""A user's own texts as training data: reading, tokenizing, splitting, and keeping the result on disk."""

from flexmdm.data.encoding import Preparation
from flexmdm.data.functions import CodeSource
from flexmdm.data.pairs import Pair, PairSource
from flexmdm.data.prepared import Prepared, prepare
from flexmdm.data.reading import ReadReport, Source, fingerprint
from flexmdm.data.splitting import Delimiter, chunk, split_paragraphs
from flexmdm.data.stores import BalancedStore, TokenStore
from flexmdm.data.tokenizers import TextTokenizer, suggest

__all__ = [
    "BalancedStore",
    "CodeSource",
    "Delimiter",
    "Pair",
    "PairSource",
    "Preparation",
    "Prepared",
    "ReadReport",
    "Source",
    "TextTokenizer",
    "TokenStore",
    "chunk",
    "fingerprint",
    "prepare",
    "split_paragraphs",
    "suggest",
]
