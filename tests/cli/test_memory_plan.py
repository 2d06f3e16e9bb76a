"""`burnish plan` on the command line."""

from __future__ import annotations

import json

import pytest

from burnish.cli.main import main


@pytest.fixture
def folder(tmp_path):
    """A model folder with a config and no weights."""
    import transformers

    transformers.LlamaConfig(
        vocab_size=4096, hidden_size=128, num_hidden_layers=6, num_attention_heads=4, intermediate_size=256,
        max_position_embeddings=128,
    ).save_pretrained(tmp_path / "model")  # fmt: skip
    return tmp_path / "model"


def plan(folder, *words: str) -> list[str]:
    return ["plan", "--model_name_or_path", str(folder), "--task", "causal-lm", "--device", "cuda", *words]


def test_a_plan_in_words(folder, capsys) -> None:
    assert main(plan(folder, "--device_memory_gib", "24")) == 0
    said = capsys.readouterr().out
    assert "8 × 128 tokens" in said and "optimizer" in said and "It fits: of 24.00 GiB" in said


def test_a_plan_as_json_names_the_cheapest_change(folder, capsys) -> None:
    assert main(plan(folder, "--device_memory_gib", "0.515", "--per_device_train_batch_size", "1", "--json")) == 0
    found = json.loads(capsys.readouterr().out)
    assert not found["fits"] and found["changes"]
    assert found["memory"]["optimizer"] == 2 * found["memory"]["weights"]


@pytest.mark.parametrize(
    ("words", "stage"),
    [
        ([], 0),
        (["--fsdp"], 3),
        (["--fsdp", "shard_grad_op offload"], 2),
        (["--fsdp", "--zero_stage", "1"], 1),
        (["--deepspeed", '{"zero_optimization": {"stage": 2}}'], 2),
    ],
)
def test_what_processes_share_follows_from_the_settings_of_the_run(words, stage, folder, capsys) -> None:
    assert main(plan(folder, "--num_processes", "4", "--json", *words)) == 0
    assert json.loads(capsys.readouterr().out)["scenario"]["zero_stage"] == stage


def test_settings_come_from_a_file_too(folder, tmp_path, capsys) -> None:
    file = tmp_path / "run.yaml"
    file.write_text(
        f"model_name_or_path: {folder}\ntask: causal-lm\noptim: sgd\nmax_seq_length: 64\ntrain_file: a.csv\n"
        "output_dir: out\n"
    )
    assert main(["plan", str(file), "--device", "cpu", "--token_budget", "256", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["memory"]["optimizer"] == 0
    assert (found["scenario"]["rows"], found["scenario"]["micro_batches"]) == (4, 2)


def test_ways_to_train_are_compared(folder, capsys) -> None:
    words = plan(folder, "--compare", "--num_processes", "4", "--device_memory_gib", "24")
    assert main([*words, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["compared"]
    full = {kind["shared"]: kind["memory"] for kind in found if kind["trained"] == "every weight"}
    assert len(full) == 8 and len(found) == 24
    shared = [full[name]["peak"] for name in ("nothing", "ZeRO 1", "ZeRO 2", "ZeRO 3")]
    assert shared == sorted(shared, reverse=True)
    assert full["ZeRO 1"]["optimizer"] == full["nothing"]["optimizer"] / 4
    assert full["ZeRO 2, optimizer on the host"]["on_host"] == full["ZeRO 2"]["optimizer"]
    adapters = [kind["memory"] for kind in found if kind["shared"] == "nothing"]
    assert adapters[0]["gradients"] > adapters[1]["gradients"] == adapters[2]["gradients"]
    assert adapters[2]["weights"] < adapters[1]["weights"]
    assert main(words) == 0
    assert "QLoRA, rank 16" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["plan"], "Missing: --model_name_or_path"),
        (["plan", "--device", "tpu", "--model_name_or_path", "m"], "choose one of cpu, cuda"),
        (["plan", "--model_name_or_path", "./nowhere"], "does not exist"),
        (["plan", "--zero_stag", "1"], "--zero_stage"),
    ],
)
def test_mistakes_are_explained(words, said, capsys) -> None:
    assert main(words) == 2
    assert said in capsys.readouterr().err
