#!/usr/bin/env bash
# A million lines of 200 bytes, 30 percent of them repeated: `claimdb dedup` beside the sqlite3 shell that fills a table with
# a UNIQUE column, 1,000 rows a transaction, each transaction synced; with sqlite3's own cache, and with one of 1 GiB. In
# turn, medians of the rounds; prints a table and writes target/figures/dedup.json. --trial does it once with few lines and writes
# nothing. Needs jq. Everything is on the file system of TMPDIR, /var/tmp unless set.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
lines=1000000 rounds=5 trial=
[[ ${1:-} != --trial ]] || { lines=3000 rounds=1 trial=yes; }
command -v sqlite3 >/dev/null || { echo "skipped: no sqlite3 is installed" && exit 0; }

# Figures want an optimized build; a trial takes the one that the tests use.
profile=release features=(--features cli)
[[ -z $trial ]] || profile=dev features=(--all-features)
cargo build --manifest-path "$here/../Cargo.toml" --profile "$profile" "${features[@]}"
claimdb=${CARGO_TARGET_DIR:-$here/../target}/${profile/dev/debug}/claimdb

folder=$(mktemp -d "${TMPDIR:-/var/tmp}/claimdb-dedup-XXXXXX")
trap 'rm -rf "$folder"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
# Each line is new or, three times in ten, one of those before it.
awk -v lines="$lines" 'BEGIN {
  srand(7)
  for (n = 0; n < lines; n++) {
    of = n > 0 && rand() < 0.3 ? int(rand() * n) : n
    printf "%016d%0184d\n", of * 7919 % 10000019, of
  }
}' >"$folder/lines"
sql() { # CACHE: the statements that do the same
  awk -v cache="$1" '
    BEGIN {
      print "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;"
      if (cache) print "PRAGMA cache_size = " cache ";"
      print "CREATE TABLE seen (line TEXT UNIQUE);"
    }
    NR % 1000 == 1 { if (NR > 1) print "COMMIT;"; print "BEGIN;" }
    { print "INSERT OR IGNORE INTO seen VALUES (\047" $0 "\047);" }
    END { print "COMMIT;" }' "$folder/lines"
}
sql "" >"$folder/default.sql"
sql -1048576 >"$folder/large.sql"
unique=$(awk '!seen[$0]++' "$folder/lines" | wc -l)

seconds() { # COMMAND...: how long it takes
  local start=$EPOCHREALTIME
  "$@" || return
  awk -v from="$start" -v to="$EPOCHREALTIME" 'BEGIN { printf "%.3f", to - from }'
}
ours() { "$claimdb" dedup --store "$folder/store" "$folder/lines" >"$folder/new" 2>"$folder/told"; }
theirs() { sqlite3 "$folder/db" <"$folder/$1.sql" >"$folder/told"; }
same() { (($2 == unique)) || { echo "$1 found $2 lines and not $unique" >&2 && exit 1; }; }

declare -A took=([claimdb]='' [default]='' [large]='')
for ((round = 0; round < rounds; round++)); do
  rm -rf "$folder/store" && took[claimdb]+=$(seconds ours)$'\n'
  same claimdb "$(wc -l <"$folder/new")"
  for cache in default large; do
    rm -f "$folder"/db* && took[$cache]+=$(seconds theirs "$cache")$'\n'
    same sqlite3 "$(sqlite3 "$folder/db" 'SELECT count(*) FROM seen')"
  done
done
middle() { sed '/^$/d' <<<"${took[$1]}" | sort -n | sed -n "$((rounds / 2 + 1))p"; }
json=''
for what in claimdb default large; do
  rate=$(awk -v lines="$lines" -v s="$(middle $what)" 'BEGIN { printf "%.0f", lines / s }')
  printf '%-34s %8s s %10s lines/s\n' "${what/#default/sqlite3, its own cache}" "$(middle $what)" "$rate" | sed 's/^large/sqlite3, cache of 1 GiB/'
  json+="$(printf '\n  {"what": "%s", "seconds": %s, "lines_per_second": %s},' "$what" "$(middle $what)" "$rate")"
done
echo "measured: $lines lines, $rounds rounds"
[[ -z $trial ]] || exit 0
machine=$("$claimdb" bench --seconds 0.1 --rounds 1 --threads 1 --durability full --dir "$folder" --json 2>"$folder/told" | jq 'del(.machine.versions).machine')
mkdir -p "$here/../target/figures"
jq -n --arg commit "$("$here/commit.sh")" --argjson machine "$machine" --argjson measured "[${json%,}]" \
  --argjson lines "$lines" --argjson rounds "$rounds" '{
    command: "benches/dedup.sh", commit: $commit, machine: $machine,
    lines: $lines, line_bytes: 200, repeated: 0.3, rounds: $rounds, measured: $measured
  }' >"$folder/dedup.json"
cp "$folder/dedup.json" "$here/../target/figures/dedup.json"
echo "written to target/figures/dedup.json"
