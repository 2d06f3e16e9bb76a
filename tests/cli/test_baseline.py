"""What a trained model has to beat."""

from __future__ import annotations

from burnish.cli.baseline import bag_of_words_accuracy, features, majority_accuracy


def test_the_majority_is_that_of_the_training_rows():
    assert majority_accuracy(["a", "a", "b"], ["a", "b", "b", "b"]) == 0.25


def test_words_and_pairs_are_counted():
    assert features("Not good, isn't it?") == ["not", "good", "isn't", "it", "not good", "good isn't", "isn't it"]


def test_naive_bayes_agrees_with_scores_by_hand():
    # Train: "good" (positive), "bad" (negative). A text of known words goes to their class, an unknown one to the
    # commoner class.
    train_texts, train_labels = ["good", "good", "bad"], ["positive", "positive", "negative"]
    texts, labels = ["good", "bad bad", "unknown"], ["positive", "negative", "positive"]
    assert bag_of_words_accuracy(train_texts, train_labels, texts, labels) == 1.0
    assert bag_of_words_accuracy(train_texts, train_labels, ["bad bad"], ["positive"]) == 0.0
