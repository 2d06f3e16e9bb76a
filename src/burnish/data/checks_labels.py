"""Checks of labels against what the model's head can learn from. Heads are told by the names of their classes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .columns import LABELS
from .findings import Check
from .label_faults import LabelFaults

if TYPE_CHECKING:
    from burnish.models.contract import ModelFacts

CLASSES = (
    "ForSequenceClassification",
    "ForImageClassification",
    "ForAudioClassification",
    "ForVideoClassification",
)
WORDS = ("ForCausalLM", "LMHeadModel", "ForMaskedLM", "ForConditionalGeneration", "ForPreTraining", "MTModel")
TWO_VOCABULARIES = ("Marian", "FSMT", "EncoderDecoder", "SpeechEncoderDecoder", "VisionEncoderDecoder", "Musicgen")
"""Beginnings of the names of models whose labels come from another vocabulary than their inputs may."""
LM_HINT = (
    " If they are of another task, remove the column and let a collator make the labels: "
    "data_collator=DataCollatorForLanguageModeling(tokenizer, mlm=…)."
)
SPANS = ("start_positions", "end_positions")
OF_TWO_TEXTS = ("next_sentence_label", "sentence_order_label")
"""Labels that say of two texts whether they belong together, beside the labels of the words."""


def label_checks(name: str, column: str, facts: ModelFacts) -> list[Check]:
    """Checks of one column of labels: numbers, present, of the right type and shape, in range."""
    labels = LabelFaults(name, column, facts)
    checks = [labels.not_text(_meaning(facts)), labels.present(), labels.finite()]
    if column in SPANS:
        return [*checks, labels.whole("positions of tokens"), labels.from_zero()]
    if not _is_main(column, facts):
        return checks + range_checks(name, column, facts)
    if facts.name.endswith(CLASSES):
        return checks + _class_checks(labels)
    return checks + range_checks(name, column, facts)


def range_checks(name: str, column: str, facts: ModelFacts) -> list[Check]:
    """Those checks that hold whatever a collator does beside padding."""
    labels = LabelFaults(name, column, facts)
    if column in OF_TWO_TEXTS:
        return [labels.whole("0 or 1"), labels.below(2, of="")]
    if column in SPANS or not _is_main(column, facts):
        return []  # of positions, or of a head of which nothing is known here
    if facts.name.endswith("ForTokenClassification"):
        return [labels.whole("classes"), labels.sequences(), labels.one_a_token(), labels.below(facts.num_labels)]
    if facts.name.endswith("ForMultipleChoice"):
        return [labels.whole("numbers of choices"), labels.a_choice()]
    if facts.name.endswith("ForNextSentencePrediction"):
        return [labels.whole("0 or 1"), labels.below(2, of="")]
    if facts.name.endswith(WORDS):
        return _word_checks(labels)
    if facts.name.endswith(CLASSES) and not _is_regression(facts):
        return [labels.below(facts.num_labels)]
    return []


def _is_main(column: str, facts: ModelFacts) -> bool:
    """Whether a column is what the model's head learns, under its own name or a user's; others are of further heads."""
    return column in LABELS or column not in facts.label_names or "labels" not in facts.label_names


def _meaning(facts: ModelFacts) -> str:
    """What the labels of a head are: "words", "numbers" or "classes"."""
    if facts.name.endswith(WORDS):
        return "words"
    return "numbers" if facts.name.endswith(CLASSES) and _is_regression(facts) else "classes"


def _class_checks(labels: LabelFaults) -> list[Check]:
    """As transformers decides: the kind of problem is set, or told from `num_labels` and the type of the labels."""
    facts = labels.facts
    if _is_regression(facts):
        return [labels.width(1 if facts.num_labels is None else facts.num_labels)]
    if facts.problem_type == "multi_label_classification":
        return [labels.fractions(), labels.width(facts.num_labels), labels.shares()]
    checks = [labels.not_multi_hot(), labels.not_single_fractions(), labels.below(facts.num_labels)]
    return checks if facts.problem_type else [*checks, labels.width(facts.num_labels, of="float")]


def _word_checks(labels: LabelFaults) -> list[Check]:
    facts = labels.facts
    checks = [labels.whole("token ids"), labels.sequences(LM_HINT)]
    if not facts.is_encoder_decoder:
        checks.append(labels.one_a_token())
    if facts.vocab_size is not None and not facts.name.startswith(TWO_VOCABULARIES):
        checks.append(labels.below(facts.vocab_size, of="vocab_size"))
    return checks


def _is_regression(facts: ModelFacts) -> bool:
    return facts.problem_type == "regression" or (facts.problem_type is None and facts.num_labels == 1)
