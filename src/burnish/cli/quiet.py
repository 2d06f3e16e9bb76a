"""Keeps other libraries from printing into the output: load reports, progress bars, advice for developers."""

from __future__ import annotations

import contextlib
import logging
import warnings
from collections.abc import Iterator

from burnish.core.importing import importing


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Within, transformers says errors only and no library draws a bar; afterwards all is as it was."""
    with importing():
        import transformers

    verbosity = transformers.utils.logging.get_verbosity()
    bars = transformers.utils.logging.is_progress_bar_enabled()
    httpx = logging.getLogger("httpx").level
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    logging.getLogger("httpx").setLevel(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", category=FutureWarning, module="(transformers|huggingface_hub|torch)")
            yield
    finally:
        transformers.utils.logging.set_verbosity(verbosity)
        logging.getLogger("httpx").setLevel(httpx)
        if bars:
            transformers.utils.logging.enable_progress_bar()
