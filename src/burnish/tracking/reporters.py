"""Where else numbers go: the reporting integrations of transformers, by name."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterable
from typing import Any

from burnish.core.errors import SettingError, did_you_mean

PACKAGES: dict[str, tuple[str, ...]] = {
    "azure_ml": ("azureml",),
    "clearml": ("clearml",),
    "codecarbon": ("codecarbon",),
    "comet_ml": ("comet_ml",),
    "dagshub": ("dagshub", "mlflow"),
    "dvclive": ("dvclive",),
    "flyte": ("flytekit",),
    "kubeflow": (),
    "mlflow": ("mlflow",),
    "neptune": ("neptune",),
    "swanlab": ("swanlab",),
    "tensorboard": ("tensorboard",),
    "trackio": ("trackio",),
    "wandb": ("wandb",),
}
"""Modules that each integration imports; all of them must be there."""

_TO_INSTALL = {"azureml": "azureml-core"}
_STAND_INS = {"tensorboard": "tensorboardX"}


def reporter_callbacks(report_to: Iterable[str] | str | None) -> list[Any]:
    """The callbacks for `report_to`: a name, several names, "all" (those installed), or "none".

    Raises:
        SettingError: a name is unknown, or what it needs isn't installed.
    """
    names = _names(report_to)
    if not names:
        return []
    for name in names:
        _check(name)
    from transformers.integrations.integration_utils import INTEGRATION_TO_CALLBACK

    return [_built(name, INTEGRATION_TO_CALLBACK) for name in names]


def installed_reporters() -> list[str]:
    """The names whose packages are installed. Kubeflow needs none and is taken where its server is named."""
    found = [name for name, modules in PACKAGES.items() if modules and not _missing(name)]
    return [*found, "kubeflow"] if os.environ.get("KUBEFLOW_TRAINER_SERVER_URL") else found


def _names(report_to: Iterable[str] | str | None) -> list[str]:
    asked = [report_to] if isinstance(report_to, str) else list(report_to or [])
    names: list[str] = []
    for name in asked:
        names += installed_reporters() if name == "all" else [name]
    return [name for name in dict.fromkeys(names) if name != "none"]


def _check(name: str) -> None:
    if name not in PACKAGES:
        known = sorted([*PACKAGES, "all", "none"])
        raise SettingError(f"report_to={name!r} is unknown. Known: {', '.join(known)}.{did_you_mean(str(name), known)}")
    missing = _missing(name)
    if missing:
        install = " ".join(_TO_INSTALL.get(module, module) for module in missing)
        raise SettingError(
            f"report_to={name!r} needs the package {' and '.join(missing)}, which is not installed. "
            f"Install it (pip install {install}), or take {name!r} out of report_to."
        )


def _missing(name: str) -> list[str]:
    return [module for module in PACKAGES[name] if not (_is_there(module) or _is_there(_STAND_INS.get(module, module)))]


def _is_there(module: str) -> bool:
    return importlib.util.find_spec(module) is not None


def _built(name: str, classes: dict[str, Any]) -> Any:
    """An instance; integrations say while they are built what else they miss (a key, a newer version)."""
    if name not in classes:
        raise SettingError(f"report_to={name!r} does not exist in the installed version of transformers.")
    try:
        return with_scalars_alone(classes[name]())
    except (RuntimeError, ImportError, AssertionError) as error:
        raise SettingError(f"report_to={name!r} cannot be used: {error}") from error


def with_scalars_alone(callback: Any) -> Any:
    """The callback, which hears of single values in logs alone: of a list, such as the F1 of each class, trackers of
    curves would warn at every evaluation. Lists are in `log.jsonl`."""
    report = callback.on_log

    def on_log(args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **kwargs: Any) -> Any:
        single = {name: value for name, value in (logs or {}).items() if not isinstance(value, (list, dict))}
        return report(args, state, control, logs=single, **kwargs)

    callback.on_log = on_log
    return callback
