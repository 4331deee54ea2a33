"""Declarative performance tests for LLM inference servers, from Python.

>>> import llmscen
>>> run = llmscen.run("chat.yaml", set={"load.concurrency": 8})
>>> run.verdict
'pass'
"""

from llmscen._binary import binary
from llmscen._errors import LlmscenError, RunFailed, ScenarioError, VerdictError
from llmscen._execute import run
from llmscen._run import Run, Verdict

__all__ = [
    "LlmscenError",
    "Run",
    "RunFailed",
    "ScenarioError",
    "Verdict",
    "VerdictError",
    "binary",
    "run",
]
