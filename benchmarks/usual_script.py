"""Text classification as scripts with `transformers.Trainer` do it: flags, a CSV file, tokenising, training.

python benchmarks/usual_script.py --model_name_or_path FOLDER --train_file FILE --output_dir FOLDER
"""

from dataclasses import dataclass

from datasets import load_dataset
from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    DataCollatorWithPadding,
    HfArgumentParser,
    Trainer,
    TrainingArguments,
)


@dataclass
class Inputs:
    model_name_or_path: str
    train_file: str


def main() -> None:
    inputs, args = HfArgumentParser((Inputs, TrainingArguments)).parse_args_into_dataclasses()
    rows = load_dataset("csv", data_files=inputs.train_file, cache_dir=f"{args.output_dir}/cache")["train"]
    labels = sorted(rows.unique("label"))
    tokenizer = AutoTokenizer.from_pretrained(inputs.model_name_or_path)
    model = AutoModelForSequenceClassification.from_pretrained(inputs.model_name_or_path, num_labels=len(labels))

    def encode(batch: dict[str, list[str]]) -> dict[str, list[int]]:
        encoded = tokenizer(batch["text"], truncation=True)
        return {**encoded, "labels": [labels.index(label) for label in batch["label"]]}

    rows = rows.map(encode, batched=True, remove_columns=rows.column_names)
    Trainer(model=model, args=args, train_dataset=rows, data_collator=DataCollatorWithPadding(tokenizer)).train()


if __name__ == "__main__":
    main()
