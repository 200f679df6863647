#!/usr/bin/env bash
# Tries the mutants of `src/store/`, or of the files that are named, prints what became of them and writes
# docs/figures/mutants.json:
#   [JOBS=2] [TESTED_FOR=60] [ONLY=src/store/copy] [AGAIN=1] .ci/mutants/run.sh ['src/lease/**']
# JOBS tries so many at a time. TESTED_FOR gives each no more tests, the cheapest first, than take so many seconds together;
# with 0 nothing is tried, and what is known by now is told. ONLY tries those alone whose file begins so. AGAIN takes the
# program that was built last. What was killed is kept in target/mutants, and not tried again until that is removed. Wants
# cargo-mutants, which lists what there is to change.
set -euo pipefail
cd "$(dirname "$0")/../.."
files=${1:-src/store/**}
# Those that go by the public interface and start no other features.
tests=(
  admin_socket backup backup_waits bad_input batch_faults batches by_hand caller_syncs claims close compact copy crash
  damaged_records effects failed_sync faults fork found kv kv_durable listings losing many nesting on_the_way opening
  protocol_table recent refusals repair_log retention_clock run_rules scenario_callbacks scenario_claims scenario_holders
  scenario_recovery scenario_results scenario_waiters scopes settling shown sweep sweep_busy sweep_faults sweeping
  task_operations tasks threads told verify verify_around waiting
)
features=admin,sled,redb
target=${CARGO_TARGET_DIR:-$PWD/target}/mutants
folder=$target/${files//[^a-z]/}
tree=$folder/tree
mkdir -p "$tree"
export CARGO_PROFILE_DEV_DEBUG=0 CARGO_INCREMENTAL=0
# What stands in the name of a `Break` is what the models' twins break.
cargo mutants --list --json -E 'Break::' -f "$files" >"$folder/list.json"
# What has not changed keeps its time, so that cargo builds it once.
[[ -n ${AGAIN-} ]] || git ls-files -co --exclude-standard | tar -cT - | tar -xC "$tree"
# One program of all tests: it is linked once. What is the crate to a file below a test is the test's module in it.
for test in "${tests[@]}"; do printf '#[path = "%s.rs"]\nmod %s;\n' "$test" "$test"; done >"$tree/tests/woven.rs"
sed -i 's/^use crate::/use super::/' "$tree"/tests/*/*.rs
CARGO_TARGET_DIR=$target/tool cargo run -q --manifest-path .ci/mutants/Cargo.toml -- \
  "$folder/list.json" "$tree" "$folder/results" .ci/mutants/argued "$features" | tee docs/figures/mutants.json
