"""Makes the reviews that `burnish demo` and the benchmarks train on, from the source package of vaderSentiment.

    pip download --no-deps --no-build-isolation --no-binary :all: -d build vaderSentiment==3.3.2
    python benchmarks/make_demo_data.py build/vaderSentiment-3.3.2.tar.gz

Inside lies `additional_resources/hutto_ICWSM_2014.tar.gz` with snippets of movie reviews (one a review) and sentences
of Amazon reviews (id `<review>_<sentence>`), each with the mean of 20 raters on a scale of -4 to 4. Which rows are
taken is a function of their source and id alone, so that running this again writes the same files.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import html
import io
import re
import tarfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

SOURCES = ("movie", "amazon")
CLEAR_SCORE = 1.0
"""Snippets whose mean score is nearer to 0 than this are neither positive nor negative and are left out."""
NUM_TRAIN, NUM_VALIDATION = 2000, 800
FOLDER = Path(__file__).resolve().parents[1] / "src" / "burnish" / "demo"
BENCHMARKS = Path(__file__).resolve().parent / "data"


@dataclass(frozen=True)
class Snippet:
    review: str
    """Source and number of the review; every snippet of a review lands in the same split."""
    name: str
    text: str
    label: str

    @property
    def normalised(self) -> str:
        """What counts as the same text: letters and digits, in small letters."""
        return " ".join(re.findall(r"\w+", self.text.lower()))

    @property
    def draw(self) -> str:
        """A fixed lot for the snippet."""
        return lot(self.name)


def lot(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()


def read_archive(sdist: Path) -> dict[str, str]:
    """The table of each source, from the archive inside the source package."""
    with tarfile.open(sdist) as outer:
        inner_name = next(n for n in outer.getnames() if n.endswith("additional_resources/hutto_ICWSM_2014.tar.gz"))
        inner_file = outer.extractfile(inner_name)
        assert inner_file is not None
        with tarfile.open(fileobj=io.BytesIO(inner_file.read())) as inner:
            tables = {}
            for source in SOURCES:
                table = inner.extractfile(f"hutto_ICWSM_2014/{source}ReviewSnippets_GroundTruth.txt")
                assert table is not None
                tables[source] = table.read().decode("utf-8-sig")
            return tables


def snippets(source: str, table: str, clear_score: float = CLEAR_SCORE) -> Iterable[Snippet]:
    """The snippets of one source that are clearly positive or negative; all of them where `clear_score` is 0."""
    for line in table.splitlines():
        number, score, text = line.split("\t")
        if abs(float(score)) < clear_score:
            continue
        label = "positive" if float(score) > 0 else "negative"
        yield Snippet(f"{source} {number.split('_')[0]}", f"{source} {number}", cleaned(text), label)


def cleaned(text: str) -> str:
    """Takes back what happened to the text on its way: escapes of HTML (some twice), runs of spaces."""
    while (plain := html.unescape(text)) != text:
        text = plain
    return " ".join(text.split())


def without_duplicates(rows: Iterable[Snippet]) -> list[Snippet]:
    """The first snippet of each text; none of a text that was rated both ways."""
    rows = list(rows)
    labels: dict[str, set[str]] = {}
    for row in rows:
        labels.setdefault(row.normalised, set()).add(row.label)
    first: dict[str, Snippet] = {}
    for row in rows:
        if row.normalised and len(labels[row.normalised]) == 1:
            first.setdefault(row.normalised, row)
    return list(first.values())


def balanced(rows: list[Snippet], num_rows: int) -> list[Snippet]:
    """`num_rows` snippets, half of each label, in an order drawn by lot."""
    half = num_rows // 2
    chosen = []
    for label in ("negative", "positive"):
        of_label = sorted((row for row in rows if row.label == label), key=lambda row: row.draw)
        assert len(of_label) >= half, f"only {len(of_label)} {label} snippets for {half}"
        chosen += of_label[:half]
    return sorted(chosen, key=lambda row: row.draw)


def split(rows: list[Snippet]) -> tuple[list[Snippet], list[Snippet]]:
    """Train and validation; a review is in one of them only."""
    held_out = [row for row in rows if int(lot(row.review), 16) % 4 == 0]
    rest = [row for row in rows if int(lot(row.review), 16) % 4 != 0]
    return balanced(rest, NUM_TRAIN), balanced(held_out, NUM_VALIDATION)


def write(path: Path, rows: list[Snippet]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(["text", "label"])
        table.writerows((row.text, row.label) for row in rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sdist", type=Path, help="the source package of vaderSentiment")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="where to write the two files")
    arguments = parser.parse_args()
    tables = read_archive(arguments.sdist)
    rows = without_duplicates(row for source in SOURCES for row in snippets(source, tables[source]))
    train, validation = split(rows)
    write(arguments.folder / "reviews_train.csv", train)
    write(arguments.folder / "reviews_validation.csv", validation)
    # for speed, the lengths matter: every sentence of the product reviews, however clear its rating
    BENCHMARKS.mkdir(exist_ok=True)
    write(BENCHMARKS / "product_reviews.csv", list(snippets("amazon", tables["amazon"], clear_score=0.0)))


if __name__ == "__main__":
    main()
