"""Every name since transformers 4.30 is translated, with one warning that names it and what to use today."""

import dataclasses
import warnings

import pytest

from burnish.arguments.old_names import OLD_NAMES, translate
from burnish.arguments.training_arguments import TrainingArguments
from burnish.core.errors import SettingError

# From reading the fields of transformers 4.30, 4.34, 4.38, 4.40, 4.42, 4.46, 4.48, 4.50, 4.53, 4.57, 5.0, 5.6 and 5.14
# that 5.24 has no more.
REMOVED_SINCE_4_30 = """
    adafactor dispatch_batches evaluation_strategy fp16_backend fp16_opt_level fsdp_min_num_params
    fsdp_transformer_layer_cls_to_wrap group_by_length half_precision_backend include_inputs_for_metrics
    include_tokens_per_second jit_mode_eval logging_dir mp_parameters no_cuda overwrite_output_dir past_index
    per_gpu_eval_batch_size per_gpu_train_batch_size push_to_hub_model_id push_to_hub_organization
    push_to_hub_token ray_scope save_safetensors sharded_ddp split_batches torchdynamo tp_size tpu_metrics_debug
    tpu_num_cores use_ipex use_legacy_prediction_loop use_mps_device warmup_ratio xpu_backend
"""

TRANSLATED = [
    ("adafactor", True, {"optim": "adafactor"}),
    ("adafactor", False, {}),
    ("evaluation_strategy", "steps", {"eval_strategy": "steps"}),
    ("group_by_length", True, {"train_sampling_strategy": "group_by_length"}),
    ("group_by_length", "False", {}),
    ("include_inputs_for_metrics", "True", {"include_for_metrics": ["inputs"]}),
    ("no_cuda", True, {"use_cpu": True}),
    ("no_cuda", False, {}),
    ("per_gpu_train_batch_size", 4, {"per_device_train_batch_size": 4}),
    ("per_gpu_train_batch_size", None, {}),
    ("per_gpu_eval_batch_size", "16", {"per_device_eval_batch_size": "16"}),
    ("push_to_hub_model_id", "me/model", {"hub_model_id": "me/model"}),
    ("push_to_hub_token", "secret", {"hub_token": "secret"}),
    ("torchdynamo", "inductor", {"torch_compile_backend": "inductor"}),
    ("warmup_ratio", 0.1, {"warmup_steps": 0.1}),
    ("warmup_ratio", "0.06", {"warmup_steps": 0.06}),
    ("warmup_ratio", 0.0, {}),
    ("xpu_backend", "gloo", {"ddp_backend": "gloo"}),
    ("fsdp_min_num_params", 100, {"fsdp_config": {"min_num_params": 100}}),
    ("fsdp_min_num_params", 0, {}),
    ("overwrite_output_dir", True, {}),
    ("logging_dir", "logs", {}),
]


def test_the_table_holds_every_removed_name():
    assert sorted(OLD_NAMES) == sorted(REMOVED_SINCE_4_30.split())


def test_no_old_name_is_a_field_and_every_new_one_is():
    names = {f.name for f in dataclasses.fields(TrainingArguments)}
    assert not names & set(OLD_NAMES)
    assert {old.new for old in OLD_NAMES.values() if old.new is not None} <= names


@pytest.mark.parametrize(("name", "value", "today"), TRANSLATED)
def test_an_old_setting_means_the_same_today(name, value, today):
    with pytest.warns(FutureWarning, match=f"`{name}`"):
        assert translate({name: value, "seed": 1}) == {**today, "seed": 1}


@pytest.mark.parametrize("name", sorted(OLD_NAMES))
def test_an_old_name_is_taken_with_exactly_one_warning(name):
    value = {old: value for old, value, _ in TRANSLATED}.get(name, True)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        TrainingArguments("out", **{name: value})
    assert [warning.category for warning in said] == [FutureWarning]
    message = str(said[0].message)
    assert f"`{name}`" in message
    assert OLD_NAMES[name].then in message
    assert said[0].filename == __file__


def test_the_new_name_is_named_with_the_old_one():
    with pytest.warns(FutureWarning, match="`evaluation_strategy` .*use `eval_strategy`"):
        args = TrainingArguments("out", evaluation_strategy="steps", eval_steps=3)
    assert (args.eval_strategy, args.eval_steps) == ("steps", 3)


def test_an_old_name_may_be_assigned():
    args = TrainingArguments()
    with pytest.warns(FutureWarning, match="`warmup_ratio`"):
        args.warmup_ratio = 0.1
    assert args.warmup_steps == 0.1
    with pytest.warns(FutureWarning, match="`evaluation_strategy`"):
        args.evaluation_strategy = "epoch"
    assert args.eval_strategy == "epoch"


def test_reading_an_old_name_says_what_to_read():
    args = TrainingArguments()
    assert not hasattr(args, "no_cuda")
    with pytest.raises(AttributeError, match="'no_cuda': use `use_cpu=True`"):
        args.no_cuda  # noqa: B018


def test_old_and_new_name_that_differ_are_a_contradiction():
    with (
        pytest.warns(FutureWarning),
        pytest.raises(SettingError, match="`evaluation_strategy` = 'steps' and `eval_strategy` = 'epoch'"),
    ):
        TrainingArguments(evaluation_strategy="steps", eval_strategy="epoch")


def test_old_and_new_name_that_agree_are_fine():
    with pytest.warns(FutureWarning):
        assert TrainingArguments(per_gpu_train_batch_size="4", per_device_train_batch_size=4).train_batch_size == 4


def test_a_number_of_warmup_steps_goes_before_a_ratio():
    with pytest.warns(FutureWarning):
        assert translate({"warmup_steps": 100, "warmup_ratio": 0.1}) == {"warmup_steps": 100}
    with pytest.warns(FutureWarning):
        assert translate({"warmup_steps": 0, "warmup_ratio": 0.1}) == {"warmup_steps": 0.1}


@pytest.mark.parametrize("ratio", [1.0, -0.1, "much"])
def test_a_warmup_ratio_that_is_no_share_is_refused(ratio):
    with pytest.warns(FutureWarning), pytest.raises(SettingError, match="`warmup_ratio`"):
        TrainingArguments(warmup_ratio=ratio)


def test_names_that_belong_together_are_joined():
    with pytest.warns(FutureWarning):
        assert translate({"push_to_hub_organization": "us", "push_to_hub_model_id": "m"}) == {"hub_model_id": "us/m"}
    with pytest.warns(FutureWarning):
        assert translate({"include_for_metrics": ["loss"], "include_inputs_for_metrics": True}) == {
            "include_for_metrics": ["loss", "inputs"]
        }
    both = {"fsdp_min_num_params": 10, "fsdp_transformer_layer_cls_to_wrap": "Block"}
    with pytest.warns(FutureWarning):
        assert translate(both) == {
            "fsdp_config": {"min_num_params": 10, "transformer_layer_cls_to_wrap": "Block"},
        }


@pytest.mark.parametrize(("old", "new"), [("adamw_hf", "adamw_torch"), ("adamw_apex_fused", "adamw_torch_fused")])
def test_an_old_optimizer_is_translated(old, new):
    with pytest.warns(FutureWarning, match=f"{old}.*{new}"):
        assert TrainingArguments(optim=old).optim == new


def test_translating_leaves_what_was_given_alone():
    given = {"no_cuda": True}
    with pytest.warns(FutureWarning):
        translate(given)
    assert given == {"no_cuda": True}


def test_gradient_checkpointing_is_no_old_name():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert TrainingArguments(gradient_checkpointing=True).activation_checkpointing is True
