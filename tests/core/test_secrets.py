"""What is never written down."""

from __future__ import annotations

import pytest

from burnish.core.secrets import hidden, hidden_in_text, hidden_in_words, is_secret

TOKEN = "hf_" + "a1" * 12


@pytest.mark.parametrize("name", ["token", "hub_token", "--hub-token", "wandb_api_key", "PASSWORD", "db.password"])
def test_names_of_secrets(name: str) -> None:
    assert is_secret(name)


@pytest.mark.parametrize("name", ["token_budget", "tokenizer_name", "max_new_tokens", "sort_key", "include_tokens"])
def test_names_of_other_things(name: str) -> None:
    assert not is_secret(name)


def test_a_command_line_keeps_all_but_the_secrets() -> None:
    words = ["train.py", "--hub_token", TOKEN, "--api-key=sesame", "--lr", "1e-4", "--token", "--debug", TOKEN]
    assert hidden_in_words(words) == [
        *("train.py", "--hub_token", "<HUB_TOKEN>", "--api-key=<API_KEY>", "--lr", "1e-4", "--token", "--debug"),
        "<TOKEN>",
    ]


def test_secrets_in_nested_settings() -> None:
    settings = {"kwargs": [{"api_key": "sesame", "size": 3, "token": None}], "note": f"use {TOKEN} there"}
    assert hidden(settings) == {
        "kwargs": [{"api_key": "<API_KEY>", "size": 3, "token": None}],
        "note": "use <TOKEN> there",
    }


def test_logins_and_signatures_in_addresses() -> None:
    assert hidden_in_text("from https://me:sesame@host/x") == "from https://<LOGIN>@host/x"
    assert hidden_in_text("at 10:30 me@host") == "at 10:30 me@host"
    signed = "https://host/rows.jsonl?x=1&X-Amz-Signature=5e5a&X-Amz-Expires=60"
    assert hidden_in_text(signed) == "https://host/rows.jsonl?x=1&X-Amz-Signature=<SIGNATURE>&X-Amz-Expires=60"
    assert hidden_in_text("https://host/a?sig=5e%2Fa") == "https://host/a?sig=<SIGNATURE>"
