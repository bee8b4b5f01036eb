#!/usr/bin/env bash
# tools/fuzz.sh TARGET SECONDS: run the fuzz target (a program) for SECONDS, starting from
# tests/fuzz/corpus/NAME. Its output is in build/fuzz/NAME/log.
set -euo pipefail
cd "$(dirname "$0")/.."

name=$(basename "$1")
work=build/fuzz/$name
mkdir -p "$work/new"
seeds=()
if [[ -d tests/fuzz/corpus/$name ]]; then seeds=("tests/fuzz/corpus/$name"); fi
if "$1" -max_total_time="$2" -rss_limit_mb=2560 -timeout=10 -print_final_stats=1 -artifact_prefix="$work/" \
    "$work/new" "${seeds[@]}" > "$work/log" 2>&1; then
  echo "-- $name: $2 s, $(grep '^Done' "$work/log")"
else
  echo "-- $name: failed"
  tail -60 "$work/log"
  exit 1
fi
