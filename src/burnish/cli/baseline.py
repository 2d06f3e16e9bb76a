"""What a trained model has to beat: the commonest class, and counting words.

Multinomial naive Bayes over words and pairs of neighbouring words, with add-one smoothing: the strongest of the simple
bag-of-words classifiers on short reviews (Wang & Manning 2012, "Baselines and Bigrams").
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Sequence

import numpy as np

Texts = Sequence[str]
Labels = Sequence[str]


def majority_accuracy(train_labels: Labels, labels: Labels) -> float:
    """Share of `labels` that are the commonest label of the training rows."""
    commonest = Counter(train_labels).most_common(1)[0][0]
    return sum(label == commonest for label in labels) / len(labels)


def bag_of_words_accuracy(train_texts: Texts, train_labels: Labels, texts: Texts, labels: Labels) -> float:
    """Share of `texts` that naive Bayes, fitted to the training rows, gives the right label."""
    classes = sorted(set(train_labels))
    vocabulary: dict[str, int] = {}
    for text in train_texts:
        for feature in features(text):
            vocabulary.setdefault(feature, len(vocabulary))
    counts = np.ones((len(classes), len(vocabulary)))  # add-one smoothing
    for text, label in zip(train_texts, train_labels, strict=True):
        np.add.at(counts[classes.index(label)], [vocabulary[feature] for feature in features(text)], 1)
    log_likelihood = np.log(counts / counts.sum(axis=1, keepdims=True))
    log_prior = np.log([list(train_labels).count(name) / len(train_labels) for name in classes])
    right = 0
    for text, label in zip(texts, labels, strict=True):
        known = [vocabulary[feature] for feature in features(text) if feature in vocabulary]
        scores = log_prior + log_likelihood[:, known].sum(axis=1)
        right += classes[int(scores.argmax())] == label
    return right / len(labels)


def features(text: str) -> list[str]:
    """Words in small letters, and pairs of neighbouring words."""
    words = re.findall(r"[\w']+", text.lower())
    return words + [f"{one} {two}" for one, two in itertools.pairwise(words)]
