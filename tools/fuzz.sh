#!/usr/bin/env bash
# tools/fuzz.sh FOLDER SECONDS: run every fuzz target in FOLDER for SECONDS each, one on each processor, starting from
# tests/fuzz/corpus/TARGET. What a target says is in build/fuzz/TARGET/log.
set -euo pipefail
cd "$(dirname "$0")/.."

fuzz() {  # TARGET SECONDS
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
    return 1
  fi
}
export -f fuzz

targets=()
for target in "$1"/fuzz_*; do
  if [[ -x $target && -f $target ]]; then targets+=("$target"); fi
done
if [[ ${#targets[@]} == 0 ]]; then echo "no fuzz target in $1" >&2; exit 1; fi
printf '%s\0' "${targets[@]}" | xargs -0 -I{} -P "$(nproc)" bash -c 'fuzz "$@"' _ {} "$2"
