"""The program that was installed with this package."""

from __future__ import annotations

import sysconfig
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path
from typing import Iterator


def binary() -> Path:
    """The path of the program `llmscen` of this wheel."""
    for path in _candidates():
        if path.is_file():
            return path.resolve()
    raise FileNotFoundError(
        "the program llmscen is not installed beside its Python package; reinstall with: pip install --force-reinstall llmscen"
    )


def _candidates() -> Iterator[Path]:
    try:
        # What the installer recorded is right for environments, --user and --prefix.
        for file in files("llmscen") or []:
            if file.name == "llmscen" and file.parent.name in ("bin", "Scripts"):
                yield Path(str(file.locate()))
    except PackageNotFoundError:
        pass
    # `pip install --target DIR` moves the program to DIR/bin and records another path.
    yield Path(__file__).parent.parent / "bin" / "llmscen"
    yield Path(sysconfig.get_path("scripts")) / "llmscen"
