"""Cut stories into sentences, one per line: the second file of `configs/sentences.toml`.

Speech is left out, as its quotation marks lie across sentences; so are sentences of fewer than 3 or more than 30 words,
and repetitions.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable, Iterator

from flexmdm.data.reading import Source, numbered

EXAMPLES = """examples:
  python benchmarks/sentences.py PATH/tinystories_subset.jsonl.gz PATH/tinystories_more.jsonl.gz > stories.txt
"""
SENTENCE = re.compile(r"(?<![\"“])\b[A-Z][^.!?\n\"“”]*[.!?](?=\s|$)")
WORDS = range(3, 31)


def sentences(stories: Iterable[str]) -> Iterator[str]:
    """Yield each sentence of some stories once.

    >>> list(sentences(['Ben ran home. "It is I!" said Ben. It was late. Ben ran home.', "Oh!"]))
    ['Ben ran home.', 'It was late.']
    """
    seen = set()
    for story in stories:
        for sentence in SENTENCE.findall(story.replace("’", "'")):
            if len(sentence.split()) in WORDS and sentence not in seen:
                seen.add(sentence)
                yield sentence


def main() -> None:
    """Print the sentences of the files that the command line names."""
    parser = argparse.ArgumentParser(
        description=__doc__, epilog=EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("paths", nargs="+", help="Files of stories, in any form that `flexmdm train` reads.")
    for sentence in sentences(text for _, text in numbered(Source(tuple(parser.parse_args().paths)))):
        print(sentence)


if __name__ == "__main__":
    main()
