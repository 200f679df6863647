#!/usr/bin/env bash
# Runs some of the crate's tests under Miri, `fuzz/sanitized/run.sh miri`, or with the thread sanitizer,
# `fuzz/sanitized/run.sh thread`; and the canary, which must fail. They need a nightly compiler with miri and rust-src.
set -uo pipefail
cd "$(dirname "$0")"
unset RUSTFLAGS
export CARGO_INCREMENTAL=0

# canary WORDS COMMAND...: the command runs the canary, and has to tell these words of it.
canary() {
  local words=$1 log
  log=$(mktemp)
  shift
  if "$@" >"$log" 2>&1 || ! grep -q "$words" "$log"; then
    tail -n 40 "$log"
    echo "the canary was NOT found, so the others show nothing"
    exit 1
  fi
  rm -f "$log"
  echo "the canary was found"
}

case ${1:-} in
  miri)
    # parking_lot keeps pointers as integers, of which Miri warns; files and clocks are the machine's.
    export MIRIFLAGS="-Zmiri-permissive-provenance -Zmiri-disable-isolation"
    test=(cargo +nightly miri test)
    canary "Data race detected" "${test[@]}" --test canary
    # A few: each takes it seconds. They go through keys, tokens, decisions, records, places and syncs.
    "${test[@]}" --test claims -- dropped_claim released_key quarantined_key earlier_opening
    ;;
  thread)
    # A backtrace takes longer than some tests wait.
    export RUSTFLAGS=-Zsanitizer=thread RUST_BACKTRACE=0
    # std as well: the sanitizer has to see its atomics.
    test=(cargo +nightly test -Zbuild-std --target "$(rustc +nightly --print host-tuple)" --no-fail-fast)
    canary "ThreadSanitizer: data race" "${test[@]}" --test canary
    shift
    (($#)) || set -- --test waiting --test tasks --test close --test batches --test sweep_busy --test claims
    "${test[@]}" "$@"
    ;;
  *)
    echo "give miri or thread" >&2
    exit 2
    ;;
esac
