#!/usr/bin/env bash
# tools/fuzz.sh FOLDER SECONDS: run every fuzz target in FOLDER for SECONDS each, starting from tests/fuzz/corpus/TARGET.
set -euo pipefail
cd "$(dirname "$0")/.."
found=0
for target in "$1"/fuzz_*; do
  [[ -x $target && -f $target ]] || continue
  found=1
  name=$(basename "$target")
  echo "-- $name: $2 s"
  work=build/fuzz/$name
  mkdir -p "$work/new"
  seeds=()
  if [[ -d tests/fuzz/corpus/$name ]]; then seeds=("tests/fuzz/corpus/$name"); fi
  "$target" -max_total_time="$2" -rss_limit_mb=2560 -timeout=10 -print_final_stats=1 -artifact_prefix="$work/" \
    "$work/new" "${seeds[@]}" > "$work/log" 2>&1 || { tail -60 "$work/log"; exit 1; }
  tail -6 "$work/log"
done
if [[ $found == 0 ]]; then echo "no fuzz target in $1" >&2; exit 1; fi
