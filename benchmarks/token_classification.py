"""A tag for each word of the product reviews, with MiniLM and dynamic padding.

The tags are made of the words, with B- and I- as entities have them: what is named with a digit (a model, a price), and
runs of words of the trade. The first token of a word carries its tag.

python benchmarks/token_classification.py --library transformers --steps 12
"""

import measure
import reviews
import training
from transformers import DataCollatorForTokenClassification

TAGS = ("O", "B-NUMBER", "I-NUMBER", "B-PRODUCT", "I-PRODUCT")
WORDS_OF_THE_TRADE = (
    "player dvd dvds cd camera lens flash zoom battery batteries memory card picture pictures photo photos ipod mp3 "
    "phone phones nokia canon nikon creative apex software windows computer screen button buttons cable usb remote "
    "control video audio sound quality headset speaker menu diaper pail router linksys norton"
)
TRADE = frozenset(WORDS_OF_THE_TRADE.split())


def kind_of(word: str) -> str | None:
    if any(letter.isdigit() for letter in word):
        return "NUMBER"
    return "PRODUCT" if word.strip(".,!?()\"'").lower() in TRADE else None


def tags_of(words: list[str]) -> list[int]:
    kinds = [kind_of(word) for word in words]
    pairs = zip([None, *kinds], kinds, strict=False)
    return [TAGS.index(f"{'I' if kind == before else 'B'}-{kind}" if kind else "O") for before, kind in pairs]


def tagged(text: str) -> dict[str, list[int]]:
    """One row, with -100 where a token does not begin a word."""
    words = text.split()
    row = tokenizer(words, is_split_into_words=True, truncation=True)
    tags, before, labels = tags_of(words), None, []
    for word in row.word_ids():
        labels.append(-100 if word is None or word == before else tags[word])
        before = word
    return {**row, "labels": labels}


options = measure.parse(__doc__, steps=12)
tokenizer = reviews.tokenizer()
rows = reviews.dataset(truncation=True).select_columns(["text"]).map(lambda row: tagged(row["text"]))
rows = rows.remove_columns("text")
model = reviews.model(options.dropout, "TokenClassification", num_labels=len(TAGS))
training.train_with(options, model, rows, batch=16, collator=DataCollatorForTokenClassification(tokenizer))
