#!/bin/sh
# Serve every model in a folder, /models by default, on PORT.
set -eu
models=${MODELS:-/models}
set --
for manifest in "$models"/*/manifest.json; do
  [ -e "$manifest" ] && set -- "$@" "$(dirname "$manifest")"
done
if [ $# = 0 ]; then
  echo "error: no model in $models" >&2
  echo "hint: mount a folder with models there, such as -v \$PWD/models:/models:ro" >&2
  exit 2
fi
exec rankfold serve "$@" --host "${HOST:-0.0.0.0}" --port "${PORT:-8080}"
