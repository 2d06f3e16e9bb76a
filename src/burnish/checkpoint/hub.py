"""A repository of the Hugging Face hub, and what goes into it in one commit."""

from __future__ import annotations

import contextlib
import logging
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from burnish.core.errors import HubError
from burnish.core.secrets import hidden_in_text

from .bars import no_progress_bars
from .export import CARD
from .handover import is_weight_file

if TYPE_CHECKING:
    from huggingface_hub import CommitInfo, HfApi

MAIN = "main"


@dataclass(frozen=True)
class Upload:
    """One commit: all of it is there when it is done, and nothing of it before.

    Args:
        message: of the commit.
        files: names in the repository to what they hold: a file here, or a short text.
        folders: folders of the repository, such as ``last-checkpoint``, of which nothing stays but these files.
        keeps_card: whether a README.md of this text, where the repository has it, stays in place of the one in `files`.
    """

    message: str
    files: Mapping[str, Path | str]
    folders: tuple[str, ...] = ()
    keeps_card: Callable[[str], bool] | None = None

    def outdates(self, name: str) -> bool:
        """Whether a file in the repository goes: weights of an older model that a reader would take for these, and
        what else is in `folders`."""
        if name in self.files:
            return False
        return name.startswith(tuple(f"{folder}/" for folder in self.folders)) or (
            is_weight_file(name) and any(map(is_weight_file, self.files))
        )


@dataclass(frozen=True)
class Repository:
    """Where a run uploads to.

    Args:
        name: ``owner/name``; without an owner, the one of the token.
        revision: a branch; the main one by default.
        token: the one that this machine is logged in with by default.
        private: whether a new repository is to be private; as its owner has set it by default.
    """

    name: str
    revision: str | None = None
    token: str | None = field(default=None, repr=False)
    private: bool | None = None

    @property
    def url(self) -> str:
        """Where it can be looked at."""
        return f"{_endpoint()}/{self.name}"

    def ready(self) -> Repository:
        """The same under its full name, once it is there with its branch, and can be written to.

        Raises:
            HubError: the token, the name, the right to write or the connection is missing.
        """
        if self.token and not re.fullmatch("[!-~]+", self.token):  # the client would write it into its error
            raise HubError("hub_token has a blank, a line break or another character that no token has.")
        with self._told(), self._api() as api:
            url = api.create_repo(self.name, private=self.private, exist_ok=True)
            found = replace(self, name=url.repo_id)
            found._check_right_to_write(api)
            if self.revision is not None and self.revision.startswith("refs/"):  # a pull request, made on the hub
                api.repo_info(found.name, revision=self.revision)
            elif self.revision not in (None, MAIN):
                api.create_branch(found.name, branch=str(self.revision), exist_ok=True)
        return found

    def _check_right_to_write(self, api: HfApi) -> None:
        """Making a repository that exists already succeeds for everybody who may read it."""
        from huggingface_hub.errors import HfHubHTTPError, RepositoryNotFoundError

        try:
            api.auth_check(self.name, write=True)
        except TypeError:  # an older huggingface_hub, which asks for the right to read alone
            return
        except RepositoryNotFoundError:
            raise
        except HfHubHTTPError as error:
            if status_of(error) != 404:  # of a server that has no such question
                raise

    def commit(self, upload: Upload) -> CommitInfo:
        """Uploads.

        Raises:
            HubError: something of it did not get there. The repository is as it was before.
        """
        from huggingface_hub import CommitOperationAdd, CommitOperationDelete

        with self._told(), self._api() as api:
            added = {
                name: CommitOperationAdd(name, content if isinstance(content, Path) else content.encode())
                for name, content in upload.files.items()
            }
            # One after the other: several at once are sent by threads that keep a process alive which has been told to
            # end, and that Python starts no more once a script has ended. What lies in two places is sent once.
            for name in upload.files:
                api.preupload_lfs_files(self.name, [added[name]], revision=self.revision, free_memory=False)
            there = api.list_repo_files(self.name, revision=self.revision)
            if CARD in there and CARD in added and self._keeps_its_card(api, upload):
                del added[CARD]
            removed = [CommitOperationDelete(name, is_folder=False) for name in there if upload.outdates(name)]
            operations: list[CommitOperationAdd | CommitOperationDelete] = [*removed, *added.values()]
            return api.create_commit(self.name, operations, commit_message=upload.message, revision=self.revision)

    def _keeps_its_card(self, api: HfApi, upload: Upload) -> bool:
        if upload.keeps_card is None:
            return False
        with tempfile.TemporaryDirectory(prefix="burnish-") as folder:
            path = api.hf_hub_download(self.name, CARD, revision=self.revision, local_dir=folder)
            return upload.keeps_card(Path(path).read_text(encoding="utf-8", errors="replace"))

    @contextlib.contextmanager
    def _api(self) -> Iterator[HfApi]:
        """The client, which says nothing between the lines of a training."""
        from huggingface_hub import HfApi

        messages = logging.getLogger("huggingface_hub.hf_api")
        with no_progress_bars():
            messages.addFilter(_is_worth_a_line)
            try:
                yield HfApi(token=self.token)
            finally:
                messages.removeFilter(_is_worth_a_line)

    @contextlib.contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            raise HubError(self._without_token(self._words(error))) from error

    def _words(self, error: Exception) -> str:
        from huggingface_hub.errors import HFValidationError

        while type(error) is RuntimeError and isinstance(error.__cause__, Exception):
            error = error.__cause__  # the client says which file it was
        text = (
            " ".join(str(getattr(error, "server_message", None) or error).split()).rstrip(".") or type(error).__name__
        )
        status = status_of(error)
        if status == 401:
            return (
                f"The hub does not take the token for {self.name} ({text}). Log in with `hf auth login`, or set "
                "HF_TOKEN or hub_token to a token that may write."
            )
        if status == 403:
            return (
                f"The token may not write to {self.name} ({text}). Set hub_token to one that may, or hub_model_id to "
                "a repository of your own."
            )
        if type(error).__name__ == "RevisionNotFoundError":
            return f"{self.name} has no branch {self.revision or MAIN} ({text}). Look at hub_revision."
        if status == 404:
            return f"The hub has no {self.name} for this token ({text}). Look at hub_model_id, owner and name."
        if status is None and type(error).__module__.startswith("httpx"):
            return (
                f"{_endpoint()} cannot be reached ({text}). Look at the connection, or leave uploads out with "
                "push_to_hub=False, or HF_HUB_OFFLINE=1."
            )
        if isinstance(error, HFValidationError):
            return f"{self.name!r} cannot be the name of a repository ({text}). Set hub_model_id to one that can."
        return f"The hub did not take it ({text})." if status is not None else f"{self.name}: {text}."

    def _without_token(self, text: str) -> str:
        return hidden_in_text(text.replace(self.token, "<HUB_TOKEN>") if self.token else text)


def _is_worth_a_line(record: logging.LogRecord) -> bool:
    """That a commit changes nothing is usual: a run ends with the model that it saved last."""
    return "No files have been modified" not in record.getMessage()


def status_of(error: Exception) -> int | None:
    """The code of an answer that is an error; None for errors of other kinds."""
    status: Any = getattr(getattr(error, "response", None), "status_code", None)
    return status if isinstance(status, int) else None


def is_offline() -> bool:
    """Whether the environment forbids to reach the hub (HF_HUB_OFFLINE)."""
    from huggingface_hub import constants

    return bool(constants.HF_HUB_OFFLINE)


def _endpoint() -> str:
    from huggingface_hub import constants

    return constants.ENDPOINT
