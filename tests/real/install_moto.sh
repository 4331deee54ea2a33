#!/usr/bin/env bash
# Installs moto, an S3 server for the tests, into target/moto: tests/real/install_moto.sh. Quick when it is there already.
set -euo pipefail
cd "$(dirname "$0")/../.."
version=5.2.5
[ -x target/moto/bin/python3 ] || python3 -m venv target/moto
# Even without anything to do, pip takes seconds.
installed=(target/moto/lib/python3*/site-packages/moto-"$version".dist-info)
[ -d "${installed[0]}" ] || target/moto/bin/python3 -m pip install --quiet "moto[server]==$version"
