"""Tables as plain text."""

from __future__ import annotations

from burnish.cli.console import cut, print_pairs, print_table, table_lines
from burnish.cli.results import figure


def test_numbers_stand_right_and_texts_left():
    lines = table_lines(["name", "value"], [["a", "1,200"], ["long", "0.5"]])
    assert lines == ["name  value", "a     1,200", "long    0.5"]


def test_pairs_are_aligned_and_longer_values_go_on_below(capsys):
    print_pairs("plan", [("task", "x"), ("classes", "a 1\nb 2")])
    assert capsys.readouterr().out == "plan\n  task     x\n  classes  a 1\n           b 2\n"


def test_a_table_without_rows_is_its_header(capsys):
    print_table("", ["a", "b"], [])
    assert capsys.readouterr().out == "  a  b\n"


def test_figures_are_readable():
    assert figure("eval_accuracy", 0.86625) == "0.8662"
    assert figure("train_runtime", 93.24) == "93.2 s"
    assert figure("eval_samples", 800) == "800"
    assert figure("epoch", 2.0) == "2"
    assert figure("eval_loss", 1.5e-5) == "1.50e-05"


def test_a_long_text_keeps_its_ends():
    assert cut("abcdefghij", 5) == "ab…ij" and cut("abc", 3) == "abc" and cut("abcd", 1) == "…"
