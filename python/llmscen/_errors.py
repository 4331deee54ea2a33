"""What `run` raises."""

from __future__ import annotations

from typing import TYPE_CHECKING, Optional

if TYPE_CHECKING:
    from llmscen._run import Run


class LlmscenError(Exception):
    """A command of llmscen failed. `exit_code` is that of the program."""

    def __init__(self, message: str, exit_code: int, run: Optional[Run] = None) -> None:
        super().__init__(message)
        self.message = message
        self.exit_code = exit_code
        #: The run, if its report was written.
        self.run = run


class ScenarioError(LlmscenError):
    """The scenario or an option is wrong (exit code 2). No request was sent."""


class RunFailed(LlmscenError):
    """The server is unreachable or was lost, or every request failed (exit code 3)."""


class VerdictError(LlmscenError):
    """With `check=True`: the verdict is not `pass` (exit codes 1, 4 and 5)."""
