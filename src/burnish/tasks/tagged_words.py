"""Reads text files with a word and its tag on each line, and a blank line between sentences (CoNLL, BIO)."""

from __future__ import annotations

from pathlib import Path

from burnish.core.errors import DataError

from .text_lines import open_text, shortened

TOKENS = "tokens"
TAGS = "tags"


def read_conll(path: Path) -> dict[str, list[list[str]]]:
    """The columns `tokens` and `tags`, a list of words and of tags for each sentence.

    Fields are parted by tabs or spaces; the first is the word, the last its tag. Lines that begin with "-DOCSTART-"
    or "# " are passed over.

    Raises:
        DataError: naming a line with a word and no tag, or another number of fields than the first line.
    """
    sentences: list[tuple[list[str], list[str]]] = [([], [])]
    num_fields = 0
    with open_text(path) as text:
        for number, line in enumerate(text, start=1):
            fields = line.split()
            if not fields:
                sentences.append(([], []))
            elif not line.startswith(("-DOCSTART-", "# ")):
                num_fields = num_fields or len(fields)
                if len(fields) < 2 or len(fields) != num_fields:
                    raise DataError(
                        f"{path}, line {number}: {len(fields)} fields, expected {max(num_fields, 2)} (a word, its tag "
                        f"last, and a blank line between sentences): {shortened(line)}."
                    )
                sentences[-1][0].append(fields[0])
                sentences[-1][1].append(fields[-1])
    given = [sentence for sentence in sentences if sentence[0]]
    if not given:
        raise DataError(f"{path}: the file has no words.")
    return {TOKENS: [words for words, _ in given], TAGS: [tags for _, tags in given]}
