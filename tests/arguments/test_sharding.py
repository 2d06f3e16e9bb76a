"""`fsdp` and `fsdp_config` in the forms that people write."""

import json

import pytest

from burnish import TrainingArguments
from burnish.core.errors import SettingError


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (True, "full_shard"),
        ("true", "full_shard"),
        ("full_shard auto_wrap", "full_shard auto_wrap"),
        ("auto_wrap,full_shard", "full_shard auto_wrap"),
        (["shard_grad_op", "offload"], "shard_grad_op offload"),
        ("offload", "full_shard offload"),
        ("hybrid_shard_zero2", "hybrid_shard_zero2"),
        (False, None),
        ("", None),
        (None, None),
        ([], None),
    ],
)
def test_forms_of_fsdp(given, words, tmp_path):
    args = TrainingArguments(str(tmp_path), fsdp=given)
    assert args.fsdp == words
    args.fsdp = given  # assigned later
    assert args.fsdp == words


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("full_shrad", "Did you mean 'full_shard'"),
        ("no_shard", "leave `fsdp` out"),
        ("full_shard shard_grad_op", "2 strategies"),
    ],
)
def test_what_fsdp_is_not(given, words, tmp_path):
    with pytest.raises(SettingError, match=words):
        TrainingArguments(str(tmp_path), fsdp=given)


def test_forms_of_the_configuration(tmp_path):
    content = {"fsdp_version": 2, "fsdp_transformer_layer_cls_to_wrap": ["BertLayer"], "reshard_after_forward": True}
    expected = {"version": 2, "transformer_layer_cls_to_wrap": ["BertLayer"], "reshard_after_forward": True}
    path = tmp_path / "fsdp.json"
    path.write_text(json.dumps(content))
    for given in (content, json.dumps(content), str(path)):
        assert TrainingArguments(str(tmp_path), fsdp=True, fsdp_config=given).fsdp_config == expected
    assert content["fsdp_version"] == 2, "the user's own stays as it is"


@pytest.mark.parametrize("text", ["missing.json", '{"version": ', "[1]"])
def test_a_configuration_that_cannot_be_read(text, tmp_path):
    if text == "[1]":
        (tmp_path / "list.json").write_text(text)
        text = str(tmp_path / "list.json")
    with pytest.raises(SettingError, match="fsdp_config"):
        TrainingArguments(str(tmp_path), fsdp=True, fsdp_config=text)


def test_activation_checkpointing_has_one_name(tmp_path):
    config = {"activation_checkpointing": True}
    args = TrainingArguments(str(tmp_path), fsdp=True, fsdp_config=config)
    assert args.gradient_checkpointing and args.activation_checkpointing
    assert not TrainingArguments(str(tmp_path), fsdp_config=config).gradient_checkpointing
