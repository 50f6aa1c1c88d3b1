#!/bin/sh
# Install rankfold with its server into the Python on the PATH. TORCH is the address of the builds of
# torch: for CPUs, or for a version of CUDA. Without it pip takes torch from its usual index.
set -eu
home=$(cd "$(dirname "$0")/.." && pwd)
pip="python -m pip install --quiet --no-cache-dir --disable-pip-version-check"
$pip --require-hashes --no-deps --requirement "$home/requirements/serve.txt"
$pip ${TORCH:+--index-url "$TORCH"} --requirement "$home/requirements/torch.txt"
$pip --no-deps "$home"
