"""Whether a higher value of a metric is better, known from its name."""

from __future__ import annotations

import re

LOWER = frozenset(
    {"loss", "error", "err", "wer", "cer", "ter", "mer", "eer", "ece", "nll", "ppl", "perplexity", "entropy"}
    | {"mse", "rmse", "msle", "rmsle", "mae", "mape", "smape", "mase", "wape", "brier", "hamming", "bpc", "bpb", "bits"}
    | {"fid", "distance", "divergence", "hausdorff", "fpr", "fnr"}
)
HIGHER = frozenset(
    {"accuracy", "accuracies", "acc", "f1", "fbeta", "precision", "recall", "sensitivity", "specificity", "tpr", "tnr"}
    | {"mcc", "matthews", "kappa", "auc", "auroc", "auprc", "roc", "ap", "map", "ndcg", "mrr", "exact", "match", "em"}
    | {"pearson", "pearsonr", "spearman", "spearmanr", "kendall", "kendalltau", "correlation", "corr", "r2", "variance"}
    | {"bleu", "sacrebleu", "chrf", "rouge", "meteor", "bertscore", "comet", "bleurt", "cider", "spice", "similarity"}
    | {"iou", "miou", "jaccard", "dice", "reward", "rewards"}
)


KNOWN = (
    f"Names with one of these words are known: higher is better for {', '.join(sorted(HIGHER))}; lower for "
    f"{', '.join(sorted(LOWER))}."
)


def direction_of(metric: str) -> bool | None:
    """True where higher is better, False where lower is better, None where the name does not say.

    Read from the end, so that prefixes do not count: "eval_fr_wer", "eval/f1-macro" and "test_rougeLsum" are known.
    """
    for word in reversed(_words(metric)):
        if word in LOWER or word.endswith("loss"):
            return False
        if word in HIGHER or word.startswith(("rouge", "bleu")):
            return True
    return None


def _words(metric: str) -> list[str]:
    """Words in small letters, first as they are and then without a closing number: "mAP50" is also "map"."""
    found = []
    for word in re.split(r"[^a-z0-9]+", metric.lower()):
        found += [word.rstrip("0123456789"), word]
    return found
