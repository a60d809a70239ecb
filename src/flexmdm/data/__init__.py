"""A user's own texts as training data: reading, tokenizing, splitting, and keeping the result on disk."""

from flexmdm.data.encoding import Preparation
from flexmdm.data.functions import CodeSource
from flexmdm.data.pairs import Pair, PairSource
from flexmdm.data.prepared import Prepared, prepare
from flexmdm.data.reading import Source
from flexmdm.data.splitting import Delimiter, chunk
from flexmdm.data.stores import BalancedStore, TokenStore
from flexmdm.data.tokenizers import TextTokenizer

__all__ = [
    "BalancedStore",
    "CodeSource",
    "Delimiter",
    "Pair",
    "PairSource",
    "Preparation",
    "Prepared",
    "Source",
    "TextTokenizer",
    "TokenStore",
    "chunk",
    "prepare",
]
