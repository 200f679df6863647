#!/usr/bin/env bash
# Measures all that docs/figures holds but the mutants, one after the other, and copies each bench's files there as it ends. With the
# names of some it does those: claim, scale, instructions, backends, http, dedup, profile, peers. --trial does each once and shortly
# and keeps nothing. Then the tests that hold the documents to the figures say which lines to mend. It wants a quiet machine, root,
# valgrind, sqlite3, jq, perf, strace and the servers of benches/peers/run.sh. The stores are on the file system of TMPDIR, /var/tmp
# unless set.
set -euo pipefail
cd "$(dirname "$0")/.."
export TMPDIR=${TMPDIR:-/var/tmp}
trial=
[[ ${1:-} != --trial ]] || { trial=yes && shift; }
all=(claim scale instructions backends http dedup profile peers)
for part in "$@"; do
  [[ " ${all[*]} " == *" $part "* ]] || { echo "used as: figures.sh [--trial] [${all[*]}]" >&2 && exit 2; }
done
(($#)) || set -- "${all[@]}"

bench() { # NAME [FEATURES...]: a trial takes the build of the tests, which is there sooner
  local name=$1 && shift
  if [[ -n $trial ]]; then
    cargo bench --profile dev --all-features --bench "$name" -- --test
  else
    cargo bench "$@" --bench "$name"
  fi
}
measure() {
  case $1 in
    claim | scale) bench "$1" ;;
    instructions) bench instructions --no-default-features ;;
    backends) bench backends --features redb ;;
    http) bench http --features axum ;;
    dedup) benches/dedup.sh ${trial:+--trial} ;;
    # There is no short one.
    profile) [[ -n $trial ]] || benches/profile.sh ;;
    # It writes into docs by itself.
    peers) benches/peers/run.sh ${trial:+--trial} ;;
  esac
}

figures=target/figures
# What an earlier run left is not to be taken for what this one measures.
[[ -n $trial ]] || rm -rf "$figures"
for part in "$@"; do
  echo "== $part, $(date +%H:%M:%S)"
  measure "$part"
  [[ -n $trial || ! -d $figures ]] || cp -r "$figures/." docs/figures/
done
[[ -z $trial ]] || exit 0

echo "== what the documents do not show yet: the tests below go by docs/figures, and print the lines that belong there"
RUST_BACKTRACE=0 cargo test --all-features --no-fail-fast --test goals --test tidy --test documents
