"""Loads pretrained models and tokenizers, and says in words what is wrong where that fails."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from pickle import UnpicklingError
from typing import Any

import torch
from safetensors import SafetensorError
from torch import nn

from burnish.core import randomness, zero_parts
from burnish.core.errors import SettingError
from burnish.core.importing import importing

from .sources import ModelSource, find_source, reason_of

logger = logging.getLogger(__name__)

_NO_LIMIT = 10**9
"""Tokenizers without a limit of their own report a `model_max_length` of about 10**30."""


def load_config(
    model_name_or_path: str,
    *,
    config_name: str | None = None,
    cache_dir: str | None = None,
    model_revision: str = "main",
    token: str | None = None,
    trust_remote_code: bool = False,
) -> Any:
    """The configuration of a model: of `config_name` where given, else of the model itself.

    Raises:
        SettingError: it is neither a folder with a `config.json`, nor a GGUF file, nor a name that the hub knows.
    """
    return _config(config_name or model_name_or_path, _hub_options(cache_dir, model_revision, token, trust_remote_code))


def load_model(
    auto_class_name: str,
    model_name_or_path: str,
    *,
    config_name: str | None = None,
    cache_dir: str | None = None,
    model_revision: str = "main",
    token: str | None = None,
    trust_remote_code: bool = False,
    torch_dtype: str | None = None,
    ignore_mismatched_sizes: bool = False,
    seed: int | None = None,
    trained: bool = False,
    **config_changes: Any,
) -> nn.Module:
    """Loads a pretrained model with a head for a task.

    Args:
        auto_class_name: a class of transformers such as "AutoModelForSequenceClassification".
        model_name_or_path: a folder, a `.gguf` file, or a name on the hub.
        torch_dtype: "float32", "bfloat16", "float16", or "auto" for the type that the weights were saved in. The
            default is float32: updates are too small for 16 bits to hold them.
        ignore_mismatched_sizes: start a head of another size from new random weights.
        seed: of weights that the checkpoint does not have; the global random state is left as it was.
        trained: refuse a checkpoint that does not have every weight, for a model that is asked and not trained.
        config_changes: attributes of the config, such as ``id2label`` or ``problem_type``. They are saved with it.

    Raises:
        SettingError: the model cannot be found or read, or its weights do not fit; the message says what to set.
    """
    auto_class = _auto_class(auto_class_name)
    options = _hub_options(cache_dir, model_revision, token, trust_remote_code)
    config = _config(config_name or model_name_or_path, options)
    for name, value in config_changes.items():
        setattr(config, name, value)
    source = find_source(model_name_or_path, with_weights=True)
    in_place = zero_parts.loaded_whole() if source.is_gguf else zero_parts.without_new_names()
    with quiet_loading(), _failure_in_words(source), _seeded(seed), in_place:
        model, report = auto_class.from_pretrained(
            source.name,
            config=config,
            dtype=_dtype(torch_dtype),
            ignore_mismatched_sizes=True,  # refused below, with the names and the shapes
            output_loading_info=True,
            **source.options,
            **options,
        )
        if source.is_gguf:
            model = _without_trace_of_quantisation(model)
    _check_sizes(source, report["mismatched_keys"], ignore_mismatched_sizes)
    fresh = set(report["missing_keys"]) | {key for key, *_ in report["mismatched_keys"]}
    _tell_of_new_weights(source, model, fresh, trained)
    return model


def load_tokenizer(
    model_name_or_path: str,
    *,
    tokenizer_name: str | None = None,
    cache_dir: str | None = None,
    model_revision: str = "main",
    token: str | None = None,
    trust_remote_code: bool = False,
    **settings: Any,
) -> Any:
    """The tokenizer of `tokenizer_name` where given, else of the model. `settings` go to `from_pretrained`."""
    with importing():
        from transformers import AutoTokenizer

    source = find_source(tokenizer_name or model_name_or_path, wanted="tokenizer")
    options = _hub_options(cache_dir, model_revision, token, trust_remote_code)
    with quiet_loading(), _failure_in_words(source):
        return AutoTokenizer.from_pretrained(source.name, **source.options, **options, **settings)


def ensure_pad_token(tokenizer: Any, model: nn.Module) -> str | None:
    """Lets rows of different lengths share a batch: the end-of-text token pads where no token is set aside for it.

    Both `tokenizer` and the config of `model` are changed. Returns a sentence to show, or None if nothing was changed.

    Raises:
        SettingError: the tokenizer has neither token.
    """
    said = None
    if tokenizer.pad_token_id is None:
        if tokenizer.eos_token_id is None:
            raise SettingError(
                "The tokenizer has no pad token and no end-of-text token to pad with. Set one, "
                "`tokenizer.pad_token = '[PAD]'`, save the tokenizer, and give its folder as --tokenizer_name."
            )
        tokenizer.pad_token = tokenizer.eos_token
        said = f"{tokenizer.eos_token!r} (end of text) also pads, since the tokenizer has no pad token"
    config: Any = getattr(model, "config", None)
    if config is not None and getattr(config, "pad_token_id", None) is None:
        config.pad_token_id = tokenizer.pad_token_id
    return said


def longest_input(tokenizer: Any, model: nn.Module, table_rows: int | None = None) -> int | None:
    """Tokens that a row may have: the smallest of what the tokenizer says, the rows of the position table
    (`table_rows`, as in `ModelFacts.max_positions`), and the length that the config names. None without any limit."""
    config = getattr(model, "config", None)
    limits = [getattr(tokenizer, "model_max_length", None), table_rows]
    limits.append(getattr(config, "max_position_embeddings", None) if table_rows is None else None)
    known = [int(limit) for limit in limits if limit is not None and 0 < limit < _NO_LIMIT]
    return min(known, default=None)


@contextlib.contextmanager
def quiet_loading() -> Iterator[None]:
    """Silences transformers' progress bar and its table of weights, and puts both back as they were."""
    from transformers.utils import logging as theirs

    level, bars = theirs.get_verbosity(), theirs.is_progress_bar_enabled()
    theirs.set_verbosity_error()
    theirs.disable_progress_bar()
    try:
        yield
    finally:
        theirs.set_verbosity(level)
        if bars:
            theirs.enable_progress_bar()


def _auto_class(name: str) -> Any:
    """A class of transformers that loads models, with all that its models import in common."""
    with importing():
        import transformers
        import transformers.masking_utils
        import transformers.modeling_utils
    return getattr(transformers, name)


def _hub_options(
    cache_dir: str | None, model_revision: str, token: str | None, trust_remote_code: bool
) -> dict[str, Any]:
    return {"cache_dir": cache_dir, "revision": model_revision, "token": token, "trust_remote_code": trust_remote_code}


def _config(name_or_path: str, options: dict[str, Any]) -> Any:
    with importing():
        from transformers import AutoConfig

    source = find_source(name_or_path)
    with quiet_loading(), _failure_in_words(source):
        return AutoConfig.from_pretrained(source.name, **source.options, **options)


@contextlib.contextmanager
def _failure_in_words(source: ModelSource) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError, RuntimeError, ImportError, KeyError, UnpicklingError, SafetensorError) as error:
        if isinstance(error, SettingError):
            raise
        unfit = next((line.strip() for line in str(error).splitlines() if "size mismatch" in line), None)
        if unfit is not None:  # said in this way where it is loaded in parts alone
            raise SettingError(
                f"The weights in {source.label} do not fit the task: {unfit} With ZeRO-3 (deepspeed) a head of another "
                "size cannot be loaded: take stage 2, or save the model with the new head first and load that."
            ) from error
        raise SettingError(f"{source.missing_text()} {reason_of(error)}") from error


@contextlib.contextmanager
def _seeded(seed: int | None) -> Iterator[None]:
    with randomness.kept():
        if seed is not None:
            randomness.seed_all(randomness.seed_for(seed, randomness.MODEL_INIT))
        yield


def _dtype(torch_dtype: str | None) -> Any:
    if torch_dtype == "auto":
        return "auto"
    dtype = getattr(torch, torch_dtype or "float32", None)
    if not isinstance(dtype, torch.dtype):
        raise SettingError(
            f"torch_dtype={torch_dtype!r} is no type of numbers. Set float32, bfloat16, float16 or auto."
        )
    return dtype


def _without_trace_of_quantisation(model: nn.Module) -> nn.Module:
    """The same weights in a model that was never quantised: one read from GGUF refuses to be saved."""
    config: Any = model.config
    for name in ("quantization_config", "_pre_quantization_dtype"):
        if hasattr(config, name):
            delattr(config, name)
    plain = type(model)(config).to(next(model.parameters()).dtype)
    plain.load_state_dict(model.state_dict())
    return plain.eval()


def _check_sizes(source: ModelSource, mismatched: Any, allowed: bool) -> None:
    if not mismatched or allowed:
        return
    shapes = [f"{key} has shape {tuple(saved)}, needed is {tuple(needed)}" for key, saved, needed in sorted(mismatched)]
    raise SettingError(
        f"The weights in {source.label} do not fit the task: {'; '.join(shapes[:3])}. If this is the head of another "
        "task, set --ignore_mismatched_sizes to start it from new random weights."
    )


def _tell_of_new_weights(source: ModelSource, model: nn.Module, fresh: set[str], trained: bool) -> None:
    if not fresh:
        return
    expected = set(model.state_dict())
    if expected <= fresh:
        raise SettingError(f"No weight in {source.label} fits a {type(model).__name__}: is it another kind of model?")
    shown = ", ".join(sorted(fresh)[:4]) + (f" and {len(fresh) - 4} more" if len(fresh) > 4 else "")
    if trained:
        raise SettingError(
            f"{source.label} was not trained as a {type(model).__name__}: it has no {shown}, so its answers would be "
            "random. Give the --output_dir of a `burnish train`, or the --task that the model was trained for."
        )
    logger.warning("New weights, to be trained: %s (%s has none).", shown, source.label)
