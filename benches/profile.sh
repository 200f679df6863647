#!/usr/bin/env bash
# Where the time of durable claims goes: `claimdb bench` with the default durability and 64 threads, under perf. Prints what each
# part of the program and the kernel takes of the processors, and how long each step of a sync takes, and writes both to
# target/figures/profile.json. Each is of a run of its own, and the file says of which. Needs Linux, root, perf and jq. The store is on the file system of TMPDIR, /var/tmp unless set.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
threads=${1:-64}
command -v perf >/dev/null || { echo "skipped: no perf is installed" && exit 0; }

CARGO_PROFILE_RELEASE_DEBUG=1 cargo build --manifest-path "$here/../Cargo.toml" --release --features cli
claimdb=${CARGO_TARGET_DIR:-$here/../target}/release/claimdb
export TMPDIR=${TMPDIR:-/var/tmp}
folder=$(mktemp -d "$TMPDIR/claimdb-profile-XXXXXX")
trap 'rm -rf "$folder"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
bench=("$claimdb" bench --threads "$threads" --duplicates 0 --durability full --seconds 5 --dir "$folder" --json)

# Each by itself, since each slows the program in its own way.
"${bench[@]}" >"$folder/alone.json" 2>"$folder/told"
perf stat -x ';' -e task-clock,context-switches,duration_time -o "$folder/stat" -- "${bench[@]}" >"$folder/counted.json" 2>>"$folder/told"
perf record -q -F 499 -o "$folder/samples" -- "${bench[@]}" >"$folder/sampled.json" 2>>"$folder/told"
perf report -i "$folder/samples" --no-children -g none --sort sym --stdio 2>>"$folder/told" | grep -E '^ +[0-9.]+%' >"$folder/symbols"
perf trace -e fdatasync,sync_file_range,pwrite64 -o "$folder/calls" -- "${bench[@]}" >"$folder/traced.json" 2>>"$folder/told"

# The parts, by the names of the functions; what is inlined counts for its caller.
awk '
  function part(name) {
    if ($2 == "[k]") return name ~ /sched|futex|wake|switch|idle|spin_unlock_irqrestore|irqentry|task|yield/ ? "kernel: threads that wait and wake" : "kernel: files, disk, memory"
    if (name ~ /malloc|free|calloc|realloc|memalign|unlink_chunk|arena/) return "allocator"
    if (name ~ /sled/) return "sled"
    if (name ~ /claimdb|hashbrown/) return "claimdb"
    if (name ~ /crossbeam|parking_lot|crc32|btree/) return "libraries, sled'\''s for the most part"
    return "others: copies, comparisons, clocks"
  }
  { share = $1; sub("%", "", share); $1 = ""; name = $0; $0 = "x" name; of[part(name)] += share }
  END { for (name in of) printf "%.1f\t%s\n", of[name], name }' "$folder/symbols" | sort -rn >"$folder/parts"

# The steps of a sync in the order of time. perf cuts the lines of calls that overlap in two; those are left out.
awk '
  match($0, /^ *[0-9.]+ \( *[0-9.]+ ms\): /) {
    split(substr($0, RSTART, RLENGTH), at, /[( ]+/)
    time = $1; took = $0; sub(/^[^(]*\( */, "", took); sub(/ ms\).*/, "", took)
    call = $0; sub(/^.*ms\): [^ ]+ +/, "", call); sub(/\(.*/, "", call)
    if (last == "fdatasync" && call == "pwrite64") print "between a sync and the next write\t" time - end
    if (last == "pwrite64" && call == "sync_file_range" || last == "sync_file_range" && call == "fdatasync")
      print "between the steps of a sync\t" time - end
    print (call == "pwrite64" ? "pwrite64, by sled" : call == "sync_file_range" ? "sync_file_range, by sled" : "fdatasync, by claimdb") "\t" took
    last = call; end = time + took
  }' "$folder/calls" | sort -t $'\t' -k1,1 -k2,2n >"$folder/steps"
awk -F '\t' '
  function tell() { if (n) printf "%.3f\t%s\n", all[int((n + 1) / 2)], name }
  $1 != name { tell(); name = $1; n = 0 }
  { all[++n] = $2 }
  END { tell() }' "$folder/steps" >"$folder/medians"

# What perf counts is of the opening and the warm-up as well, which are short.
counted() { awk -F ';' -v what="$1" '$3 ~ what { print $1 }' "$folder/stat"; }
jq -n --slurpfile alone "$folder/alone.json" --slurpfile counted "$folder/counted.json" \
  --slurpfile sampled "$folder/sampled.json" --slurpfile traced "$folder/traced.json" \
  --rawfile parts "$folder/parts" --rawfile steps "$folder/medians" \
  --arg threads "$threads" --arg commit "$("$here/commit.sh")" \
  --arg clock "$(counted task-clock)" --arg switches "$(counted context-switches)" --arg span "$(counted duration_time)" '
  def table(text): text | split("\n") | map(select(. != "") | split("\t") | { what: .[1], value: (.[0] | tonumber) });
  ($counted[0].rows[0].operations_per_second * ($span | tonumber) / 1e9) as $operations
  | {
    command: "benches/profile.sh \($threads)", commit: $commit, machine: $alone[0].machine,
    threads: ($threads | tonumber), value_bytes: $alone[0].value_bytes,
    operations_per_second: ($alone[0].rows[0].operations_per_second | round),
    syncs_per_second: ($alone[0].rows[0].syncs_per_second | round),
    processors_busy: (($clock | tonumber) * 1e6 / ($span | tonumber) * 100 | round / 100),
    processor_microseconds_per_operation: (($clock | tonumber) * 1e3 / $operations | round),
    switches_per_operation: (($switches | tonumber) / $operations * 10 | round / 10),
    percent_of_the_processors: table($parts), milliseconds_at_the_median: table($steps),
    runs: [
      [$alone[0], "by itself: operations and syncs a second"],
      [$counted[0], "under perf stat: processors and switches"],
      [$sampled[0], "under perf record: percent of the processors"],
      [$traced[0], "under perf trace: milliseconds at the median"]
    ] | map({ what: .[1], operations_per_second: (.[0].rows[0].operations_per_second | round) })
  }' >"$folder/profile.json"
jq -r '
  "claim and complete, Full, \(.threads) threads: \(.operations_per_second) operations and \(.syncs_per_second) syncs a second, \(.processors_busy) processors busy, \(.processor_microseconds_per_operation) us of them and \(.switches_per_operation) switches an operation",
  (.percent_of_the_processors[] | "  \(.value) %\t\(.what)"),
  (.milliseconds_at_the_median[] | "  \(.value) ms\t\(.what)")' "$folder/profile.json"
mkdir -p "$here/../target/figures" && cp "$folder/profile.json" "$here/../target/figures/profile.json"
echo "written to target/figures/profile.json"
