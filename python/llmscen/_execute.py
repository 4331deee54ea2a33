"""`llmscen run` as a function."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any, Dict, List, Mapping, Optional, Sequence, Union

from llmscen._binary import binary
from llmscen._errors import LlmscenError, RunFailed, ScenarioError, VerdictError
from llmscen._run import Run

Scenario = Union[str, "os.PathLike[str]", Mapping[str, Any]]


def run(
    scenario: Scenario,
    *,
    set: Optional[Mapping[str, Any]] = None,
    output: Union[str, "os.PathLike[str]", None] = None,
    args: Sequence[str] = (),
    env: Optional[Mapping[str, str]] = None,
    check: bool = False,
    quiet: bool = False,
) -> Run:
    """Run one scenario and return its results, whatever the verdict.

    scenario: a file, or the scenario itself as a mapping.
    set: fields to override, such as ``{"load.concurrency": 8, "target.url": "http://127.0.0.1:8000/v1/chat/completions"}``.
    output: the run folder to write; by default ``reports/NAME/TIME``.
    args: further options of ``llmscen run``, such as ``["--only", "concurrency=8"]``.
    env: environment variables in addition to those of this process, such as API keys.
    check: raise `VerdictError` unless the verdict is ``pass``.
    quiet: show no progress on stderr.

    Raises `ScenarioError` if the scenario or an option is wrong, `RunFailed` if the run failed, and `KeyboardInterrupt`
    if it was interrupted; the results so far are then in the run folder.
    """
    stdin: Optional[str] = None
    if isinstance(scenario, Mapping):
        stdin = json.dumps(scenario, indent=2)
        source = "-"
    else:
        source = os.fspath(scenario)
        if os.path.isdir(source):
            raise ValueError(f"{source} is a folder; run its scenarios one by one")
        if source.startswith("-"):
            # The name of a file, not an option.
            source = os.path.join(os.curdir, source)
    command = [str(binary()), "run", source, "--progress", "json", "--no-color", "--format", "json", *args]
    for path, value in (set or {}).items():
        # Strings as on the command line: `8/s`, `500ms`.
        command += ["--set", f"{path}={value if isinstance(value, str) else json.dumps(value)}"]
    if output is not None:
        command += ["--output", os.fspath(output)]
    reader = _Reader(quiet)
    exit_code = _execute(command, stdin, {**os.environ, **(env or {})}, reader)
    return _result(exit_code, reader, check)


class _Reader:
    """Reads the events of a run and shows its progress."""

    def __init__(self, quiet: bool) -> None:
        self.quiet = quiet
        self.ended: Optional[Dict[str, Any]] = None
        self.errors: List[str] = []
        self.text: List[str] = []
        self.is_line_open = False

    def read(self, line: str) -> None:
        try:
            event = json.loads(line)
            kind = event["event"]
        except (ValueError, KeyError, TypeError):
            self.text.append(line)
            return
        if kind == "run_ended":
            self.ended = event
        elif kind == "error":
            self.errors.append(event["message"])
        elif kind == "warning":
            self.show(f"warning: {event['message']}\n")
        elif kind == "folder":
            self.show(f"run folder: {event['path']}\n")
        elif kind in ("progress", "case_ended"):
            total = "" if event["total"] is None else f" of {event['total']}"
            self.show(f"\r{event['case']}: {event['done']}{total} requests, {event['errors']} errors", open=True)
            if kind == "case_ended":
                self.show("\n")

    def show(self, text: str, open: bool = False) -> None:
        if self.quiet:
            return
        # A message begins on a line of its own.
        line_end = "\n" if self.is_line_open and not open and text != "\n" else ""
        sys.stderr.write(line_end + text)
        sys.stderr.flush()
        self.is_line_open = open

    def message(self) -> str:
        if self.errors:
            return "\n".join(self.errors)
        if self.text:
            return "".join(self.text).strip()
        return str(self.ended["reason"]) if self.ended else "llmscen gave no reason"


def _execute(command: Sequence[str], stdin: Optional[str], env: Mapping[str, str], reader: _Reader) -> int:
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL if stdin is None else subprocess.PIPE,
        # The tables are in results.json.
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env=env,
        encoding="utf-8",
        errors="replace",
    )
    try:
        if process.stdin is not None:
            try:
                process.stdin.write(stdin or "")
                process.stdin.close()
            except BrokenPipeError:
                pass
        assert process.stderr is not None
        _read_all(process, reader)
        return process.wait()
    except KeyboardInterrupt:
        # Ctrl-C reached the program too: it drains and writes its report. A second one ends it.
        _read_all(process, reader)
        process.wait()
        raise
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait()
        if process.stderr is not None:
            process.stderr.close()


def _read_all(process: "subprocess.Popen[str]", reader: _Reader) -> None:
    for line in process.stderr or ():
        reader.read(line)


def _result(exit_code: int, reader: _Reader, check: bool) -> Run:
    ended = reader.ended
    run = None if ended is None else Run(ended["folder"], reason=ended["reason"])
    if exit_code == 130:
        raise KeyboardInterrupt
    if exit_code == 2:
        raise ScenarioError(reader.message(), exit_code, run)
    if exit_code not in (0, 1, 4, 5):
        raise RunFailed(reader.message(), exit_code, run)
    if run is None:
        raise LlmscenError(reader.message(), exit_code)
    if check and exit_code != 0:
        raise VerdictError(f"{run.verdict}: {run.reason}", exit_code, run)
    return run
