"""Whether higher is better, from the name."""

import pytest

from burnish.arguments.directions import direction_of

LOWER = """
    loss eval_loss eval_fr_loss contrastive_loss wer cer ter eval_fr_wer eval_wer perplexity ppl mse rmse mae mape
    error error_rate word_error_rate mean_squared_error eval/mse nll eer accuracy_error bits_per_byte fpr
    wer_normalized
"""
HIGHER = """
    accuracy eval_accuracy f1 f1_macro eval_macro-f1 precision recall recall@5 mcc matthews_correlation roc_auc
    auc pearson spearmanr r2 bleu bleu4 sacrebleu rouge1 rougeL eval_rougeLsum chrf exact_match eval_squad_f1
    top5_accuracy mAP50 mean_iou eval/accuracy balanced_accuracy error_recall
"""


@pytest.mark.parametrize(
    "metric",
    LOWER.split(),
)
def test_lower_is_better(metric):
    assert direction_of(metric) is False


@pytest.mark.parametrize(
    "metric",
    HIGHER.split(),
)
def test_higher_is_better(metric):
    assert direction_of(metric) is True


@pytest.mark.parametrize("metric", ["score", "eval_score", "quality", "my_metric", "runtime", "", "lossless"])
def test_the_name_does_not_say(metric):
    assert direction_of(metric) is None
