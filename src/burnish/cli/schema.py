"""All that `burnish train` can be told: of the data, the model, the training and the run."""

from __future__ import annotations

from dataclasses import MISSING, fields, replace

from burnish.tasks.recipe import DataRequest, ModelRequest

from .flags import Flag, flags_of

DATA_HELP = {
    "train_file": "Rows to train on: CSV, TSV, JSON, JSONL or Parquet, several by a pattern (rows-*.parquet), also of "
    "a storage (s3://bucket/rows-*.jsonl); or a folder saved by `datasets`.",
    "validation_file": "Rows to evaluate on while training.",
    "test_file": "Rows to predict at the end, with --do_predict.",
    "dataset_name": "Name of a dataset on the hub, in place of files.",
    "dataset_config_name": "Configuration of that dataset.",
    "text_column": "Column of the text, or two for a pair: question,answer. Found by itself where it is clear.",
    "label_column": "Column of the label, or several with 0 or 1 in each. Found by itself where it is clear.",
    "problem_type": "Kind of problem: regression, single_label_classification or multi_label_classification. Found by "
    "itself from the labels.",
    "max_train_samples": "Train on this many rows only.",
    "max_eval_samples": "Evaluate on this many rows only.",
    "max_predict_samples": "Predict this many rows only.",
    "max_seq_length": "Tokens of a row; the rest of a longer one is cut off. Default: as many as the model takes.",
    "pad_to_max_length": "Pad every row to the longest there may be. Changes no result; for comparisons.",
    "validation_split": "Share of the training rows to set aside for evaluation, such as 0.1.",
    "preprocessing_num_workers": "Processes that tokenise.",
    "overwrite_cache": "Tokenise again, even if it was done before.",
}
MODEL_HELP = {
    "model_name_or_path": "Pretrained model to start from: a folder, or a name on the hub.",
    "config_name": "Configuration to use in place of the model's own.",
    "tokenizer_name": "Tokenizer to use in place of the model's own.",
    "cache_dir": "Folder for a model that is downloaded. Data go where HF_DATASETS_CACHE says.",
    "model_revision": "Branch, tag or commit of the model on the hub.",
    "token": "Access token for the hub.",
    "trust_remote_code": "Run code that comes with the model.",
    "torch_dtype": "Type of the loaded weights: float32, bfloat16, float16 or auto.",
    "ignore_mismatched_sizes": "Make weights anew whose shape is another than the model's, such as a head's.",
}
RUN_FLAGS = [
    Flag("overwrite_output_dir", "bool", False, "Move what is in the folder aside (to out.1, out.2 …) and start anew.",
         "Run", "run", common=True, alone=True),
    Flag("metrics", "list", None, "What to measure in evaluations, such as accuracy f1_macro roc_auc; docs/metrics.md "
         "has all names. Default: what is usual for the task.", "Run", "run", common=True),
    Flag("num_processes", "int", None, "Train in this many processes on this machine, each with a GPU of its own where "
         "there are GPUs. Default: one, or those of torchrun or accelerate launch.", "Run", "run", common=True),
    Flag("max_restarts", "int", 0, "With num_processes: how often the processes are started again when one has failed; "
         "they go on from the last good checkpoint.", "Run", "run"),
    Flag("debug", "bool", False, "Show where in the code an error arose.", "Run", "run", common=True, alone=True),
]  # fmt: skip
RUN_HELP = {
    "output_dir": "Folder of the run: checkpoints, the model at the end, all numbers.",
    "do_train": "Train. Without any --do_…: train, and evaluate where there are validation data.",
    "do_eval": "Evaluate on the validation data.",
    "do_predict": "Predict the rows of --test_file.",
    "resume_from_checkpoint": "Go on from this checkpoint folder; without a value from the newest one in the output "
    "folder, also with other settings than before.",
}
"""What belongs to the run as a whole, in the words of the command."""
TITLES = {"Seq2 seq": "Generated texts", "Log": "Logging", "Tracker": "Tracking", "Step": "Steps"}
COMMON = (
    *("task", "model_name_or_path", "train_file", "validation_file", "test_file", "text_column", "label_column"),
    *("max_train_samples", "max_eval_samples", "max_seq_length", "validation_split", "output_dir", "do_train"),
    *("do_eval", "do_predict", "num_train_epochs", "max_steps", "learning_rate", "per_device_train_batch_size"),
    *("per_device_eval_batch_size", "gradient_accumulation_steps", "weight_decay", "warmup_steps", "seed"),
    *("lr_scheduler_type", "optim", "bf16", "fp16", "eval_strategy", "save_strategy", "logging_steps", "report_to"),
    *("resume_from_checkpoint", "nonfinite_policy", "use_cpu", "predict_with_generate"),
)
DEFAULT_TASK = "text-classification"


def train_flags() -> dict[str, Flag]:
    """Every setting of `burnish train`, by name, in the order of the help."""
    found: dict[str, Flag] = {}
    training = training_flags()
    of_run = [*(flag for flag in training if flag.section == "Run"), *RUN_FLAGS]
    for flag in [task_flag(), *model_flags(), *data_flags(), *of_run, *training]:
        found.setdefault(flag.name, replace(flag, common=flag.common or flag.name in COMMON))
    return found


def task_flag() -> Flag:
    from burnish.tasks.registry import RECIPES

    text = "What the model is to learn."
    return Flag("task", "str", DEFAULT_TASK, text, "Task and model", "task", choices=tuple(RECIPES), strict=False)


def data_flags() -> list[Flag]:
    """`seed` is left to the training arguments; one seed goes to both."""
    return [flag for flag in flags_of(DataRequest, "data", "Data", DATA_HELP) if flag.name != "seed"]


def model_flags() -> list[Flag]:
    return flags_of(ModelRequest, "model", "Task and model", MODEL_HELP)


def training_flags() -> list[Flag]:
    """The fields of the training arguments; each is shown under the group of fields that defines it."""
    from burnish.arguments.training_arguments import Seq2SeqTrainingArguments

    sections = {
        name: _section_title(part)
        for part in reversed(Seq2SeqTrainingArguments.__mro__)
        for name in vars(part).get("__annotations__", {})
    }
    return [
        replace(flag, section="Run", help=RUN_HELP[flag.name])
        if flag.name in RUN_HELP
        else replace(flag, section=sections.get(flag.name, flag.section))
        for flag in flags_of(Seq2SeqTrainingArguments, "training", "Training")
        if flag.name != "debug"  # the command's own --debug
    ]


def _section_title(part: type) -> str:
    """`CheckpointFields` is "Checkpoint"."""
    name = part.__name__
    for ending in ("Arguments", "Fields", "Settings"):
        name = name.removesuffix(ending)
    words = "".join(f" {letter.lower()}" if letter.isupper() else letter for letter in name).strip()
    return TITLES.get(words.capitalize(), words.capitalize())


def required(cls: type) -> list[str]:
    """Fields without a default."""
    return [f.name for f in fields(cls) if f.default is MISSING and f.default_factory is MISSING]
