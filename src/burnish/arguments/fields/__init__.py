"""The fields of `TrainingArguments`, one file a group. They say what can be set; none of them acts."""
