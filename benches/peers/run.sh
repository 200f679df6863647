#!/usr/bin/env bash
# Measures claimdb beside its peers, prints the tables, and writes them to docs: figures/peers.json, the tables in peers.md
# and the pictures. --trial does everything once and shortly, and writes nothing. The stores are on the file system of
# TMPDIR, /var/tmp unless set. A server that is not installed is skipped, and told so.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
docs=$here/../../docs
rounds=5 seconds=2 trial=
while (($#)); do
  case $1 in
    --trial) trial=yes rounds=1 seconds=0.05 && shift ;;
    --rounds) rounds=$2 && shift 2 ;;
    --seconds) seconds=$2 && shift 2 ;;
    *) echo "used as: run.sh [--trial] [--rounds N] [--seconds N]" >&2 && exit 2 ;;
  esac
done

# Figures want an optimized build; a trial shows none, and is built sooner without.
profile=release
[[ -z $trial ]] || profile=dev
cargo build --manifest-path "$here/Cargo.toml" --profile "$profile"
program=${CARGO_TARGET_DIR:-$here/target}/${profile/dev/debug}/claimdb-peers

folder=$(mktemp -d "${TMPDIR:-/var/tmp}/claimdb-peers-XXXXXX")
pids=()
stop() {
  local pid
  for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done
  for pid in "${pids[@]}"; do wait "$pid" 2>/dev/null || true; done
  rm -rf "$folder"
}
trap stop EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
chmod 711 "$folder" # PostgreSQL's user passes through

# answers NAME PID COMMAND...: waits until the command succeeds, which shows that the server is up.
answers() {
  local name=$1 pid=$2 left
  shift 2
  for ((left = 300; left > 0; left--)); do
    if "$@" >/dev/null 2>&1; then return; fi
    kill -0 "$pid" 2>/dev/null || break
    sleep 0.1
  done
  echo "$name does not answer; its log:" >&2
  cat "$folder/$name/log" >&2
  return 1
}

skipped=()
if command -v redis-server >/dev/null && command -v redis-cli >/dev/null; then
  mkdir "$folder/redis"
  redis-server --port 0 --unixsocket "$folder/redis/socket" --dir "$folder/redis" --save "" --appendonly yes \
    --appendfsync always --daemonize no >"$folder/redis/log" 2>&1 &
  pids+=($!)
  echo $! >"$folder/redis/pid"
  answers redis $! redis-cli -s "$folder/redis/socket" ping
else
  skipped+=("Redis=no redis-server is installed")
fi

# PostgreSQL does not run as root.
as_postgres=()
if [[ $(id -u) == 0 ]]; then as_postgres=(setpriv --reuid=postgres --regid=postgres --init-groups --); fi
bin=$(ls -d /usr/lib/postgresql/*/bin 2>/dev/null | sort -V | tail -n 1 || true)
if [[ -z $bin ]] && command -v postgres >/dev/null; then bin=$(dirname "$(command -v postgres)"); fi
if [[ -z $bin ]]; then
  skipped+=("PostgreSQL=no PostgreSQL server is installed")
elif [[ $(id -u) == 0 ]] && ! id postgres >/dev/null 2>&1; then
  skipped+=("PostgreSQL=it does not run as root, and there is no user postgres")
else
  mkdir "$folder/postgres"
  if [[ $(id -u) == 0 ]]; then chown postgres:postgres "$folder/postgres"; fi
  (
    cd "$folder/postgres"
    "${as_postgres[@]}" "$bin/initdb" --pgdata data --username postgres --auth trust --encoding UTF8 --locale C >log 2>&1 ||
      { cat log >&2 && exit 1; }
  )
  (cd "$folder/postgres" && exec "${as_postgres[@]}" "$bin/postgres" -D data -c listen_addresses= \
    -c unix_socket_directories="$folder/postgres" -c max_connections=200 >>log 2>&1) &
  pids+=($!)
  echo $! >"$folder/postgres/pid"
  answers postgres $! "$bin/pg_isready" -h "$folder/postgres" -U postgres
fi
for reason in ${skipped[@]+"${skipped[@]}"}; do echo "skipped: ${reason/=/: }"; done

# In the background, so that the traps are not kept waiting for it.
"$program" measure "$folder" "$folder/peers.json" "$rounds" "$seconds" ${skipped[@]+"${skipped[@]}"} &
pids+=($!)
wait $!
if [[ $trial ]]; then
  cp "$docs/peers.md" "$folder/peers.md"
  "$program" tables "$folder/peers.json" "$folder/peers.md" "$folder"
else
  cp "$folder/peers.json" "$docs/figures/peers.json"
  "$program" tables "$docs/figures/peers.json" "$docs/peers.md" "$docs/figures"
fi
