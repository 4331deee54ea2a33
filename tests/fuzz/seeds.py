#!/usr/bin/env python3
"""Writes the first corpora: the bodies of tests/wire, each with the control bytes that src/lib.rs reads at its end."""

from pathlib import Path

HERE = Path(__file__).parent
WIRE = HERE.parent / "wire"
# Control bytes by shape: stream, lines, whole. The second byte asks for cuts, the third for pieces of one byte.
STREAM, LINES, WHOLE = 0, 1, 2
CUTS = (bytes([8, 40, 80, 120, 160, 200, 240]), bytes([1, 0, 0, 0, 0, 0, 0]))
CHAT = {"chat", "completions", "custom", "custom_loose"}


def unchunked(framed):
    body = b""
    while b"\r\n" in framed:
        size, rest = framed.split(b"\r\n", 1)
        try:
            length = int(size, 16)
        except ValueError:
            break
        body, framed = body + rest[:length], rest[length + 2 :]
        if length == 0:
            break
    return body


def recorded(path):
    head, body = path.read_bytes().split(b"\r\n\r\n", 1)
    body = body.split(b"\n### ", 1)[0]
    lower = head.lower()
    body = unchunked(body) if b"transfer-encoding" in lower else body
    return body, STREAM if b"event-stream" in lower else WHOLE


def write(target, name, body, shape):
    folder = HERE / "corpus" / target
    folder.mkdir(parents=True, exist_ok=True)
    for number, cuts in enumerate(CUTS):
        (folder / f"{name}.{number}").write_bytes(body + bytes([shape]) + cuts)


for path in sorted(WIRE.glob("*.txt")):
    for target in {"responses"} if ".responses_" in path.name else CHAT:
        write(target, path.stem, *recorded(path))

# `tests/wire/spec/TARGET.NAME.sse|ndjson|json`: bodies written after a protocol's documentation.
for path in sorted((WIRE / "spec").glob("*.*")):
    shape = {".sse": STREAM, ".ndjson": LINES, ".json": WHOLE}[path.suffix]
    for target in {path.name.split(".")[0].removeprefix("openai-"), "custom_loose"}:
        write(target, path.stem, path.read_bytes(), shape)

PATHS = ["$", "$.a", "$..*", "$.a[*].b", "$['a','b']", "$[-1]", "$[1:9:2]", "$.a[?@.b == 'c' && !@.d].e", "$[?length(@.a) > 1]"]
PATHS += ["$.a[?match(@.b, 'x.*')]", "$[?count(@.*) >= 2]", "$[?value(@..a) == null]", "$.a[?(@.b || @.c)]", "$[?search(@, '[')]"]
BODY = b'data: {"a":[{"b":"c","e":"text"},{"b":["x"],"d":null}],"index":0}\n\ndata: [1,2,3,"x"]\n\ndata: [DONE]\n\n'
for number, path in enumerate(PATHS):
    write("custom_path", str(number), path.encode() + b"\n" + BODY, STREAM)
