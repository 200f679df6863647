#!/usr/bin/env bash
# Fuzzes every target for so many seconds, 20 if none is told, and the canary, which must fail.
# Needs cargo-fuzz. `fuzz/run.sh 600 record` fuzzes one.
set -uo pipefail
cd "$(dirname "$0")"
all=(record value damaged lines http admin operations canary)
seconds=${1:-20}
targets=("${@:2}")
((${#targets[@]})) || targets=("${all[@]}")
wrong() {
  echo "fuzz/run.sh: $1; give the seconds, and then targets, such as: fuzz/run.sh 600 record" >&2
  exit 2
}
# libFuzzer takes what is no number for 0, and 0 for no end.
[[ $seconds =~ ^[1-9][0-9]*$ ]] || wrong "fuzzing for '$seconds' seconds: that is no number above 0"
for target in "${targets[@]}"; do
  [[ " ${all[*]} " == *" $target "* ]] || wrong "fuzzing '$target': there is no such target, but ${all[*]}"
done
unset RUSTFLAGS
# Sanitizers are unstable: a nightly compiler where there is one, else the stable one with its unstable parts open.
if cargo +nightly --version >/dev/null 2>&1; then fuzz=(cargo +nightly fuzz); else fuzz=(cargo fuzz); export RUSTC_BOOTSTRAP=1; fi
"${fuzz[@]}" build --fuzz-dir . || exit 1
failed=0
for target in "${targets[@]}"; do
  mkdir -p "corpus/$target"
  log=$(mktemp)
  # A socket's thread may be ending yet, and what it has would count as lost.
  leaks=$([[ $target == admin ]] && echo 0 || echo 1)
  # Inputs are at most 4 KiB, so an allocation of 2 MiB believes a length that is not true; serde believes 1 MiB of a list's.
  "${fuzz[@]}" run --fuzz-dir . "$target" "corpus/$target" $( [[ -d seeds/$target ]] && echo "seeds/$target" ) -- \
    -max_total_time="$seconds" -malloc_limit_mb=2 -rss_limit_mb=2048 -timeout=10 -max_len=4096 -print_final_stats=1 \
    -detect_leaks="$leaks" >"$log" 2>&1
  status=$?
  executions=$(grep -oE 'number_of_executed_units: [0-9]+' "$log" | grep -oE '[0-9]+$' || echo 0)
  coverage=$(grep -oE 'cov: [0-9]+' "$log" | tail -n 1 | grep -oE '[0-9]+$' || echo 0)
  if [[ $target == canary ]]; then
    if ((status != 0)) && grep -q 'the canary was found' "$log"; then
      echo "fuzz canary: found"
      rm -f "$log"
      continue
    fi
    echo "fuzz canary: NOT found, so the others show nothing"
    failed=1
  elif ((status == 0)); then
    echo "fuzz $target: $executions executions in $seconds s, coverage $coverage"
    rm -f "$log"
    continue
  else
    echo "fuzz $target: FAILED"
    failed=1
  fi
  tail -n 60 "$log"
  rm -f "$log"
done
exit $failed
