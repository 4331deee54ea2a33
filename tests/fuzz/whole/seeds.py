#!/usr/bin/env python3
"""Writes the first corpora: the shipped scenarios, the faulty ones of the tests, and the beginnings of journals."""

from pathlib import Path
from struct import pack
from zlib import crc32

HERE = Path(__file__).parent
ROOT = HERE.parent.parent.parent


def write(target, name, content):
    folder = HERE / "corpus" / target
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(content)


for folder in ("scenarios", "crates/scenario/tests/faults", "crates/compat/tests/imports"):
    for path in sorted((ROOT / folder).glob("*.yaml")):
        write("scenario", f"{path.parent.name}-{path.name}", path.read_bytes())

HEAD = b"LLMSCENJ" + pack("<I", 4)
write("journal", "empty", HEAD)
for length in (1, 8, 64, 512):
    frame = bytes(length)
    write("journal", f"zeros-{length}", HEAD + (pack("<II", length, crc32(frame)) + frame) * 3)
# Any journal of a run folder below the repository is a better seed.
for number, path in enumerate(sorted(ROOT.glob("reports/**/journal.bin"))):
    write("journal", f"run-{number}", path.read_bytes()[:65536])
