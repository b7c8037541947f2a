#!/bin/bash
# A deployment on loopback to which something is done: what the user sees, and what is left of it.
#
# usage: faults.sh NEW_FOLDER PYTHON_BIN_FOLDER superlink|supernode|partition
# Prints every command. Exit status 0: all went as it should.
set -eu
SCRIPTS=$(cd "$(dirname "$0")" && pwd)
T=$1
PART=$3
CLIENTS=2
SETTINGS=
if [ "$PART" = supernode ]; then
    CLIENTS=3
    SETTINGS=" federation.clients=3 federation.tolerated-dropouts=1"
fi
mkdir "$T"
T=$(cd "$T" && pwd)
export PATH="$2:$PATH" PYTHONDONTWRITEBYTECODE=1 COLUMNS=100 TERM=dumb OMP_NUM_THREADS=1

finish() {
    for place in "$T"/kit/clients/* "$T/kit/server"; do
        [ -f "$place/stop.sh" ] && sh "$place/stop.sh" >/dev/null 2>&1 || true
    done
}
trap finish EXIT

on() {
    echo "\$ $*"
    status=0
    (cd "$T" && sh -c "$*" 2>&1) || status=$?
    [ "$status" = 0 ] || echo "(exit status $status)"
    echo
    return 0
}
run_beside() {
    status=0
    (cd "$T" && sh -c "$RUN") >>"$T/run.log" 2>&1 || status=$?
    echo "(exit status $status)" >>"$T/run.log"
}
# A process and those that it started.
killed() {
    echo "# kill -9: $1"
    children=$(pgrep -P "$2" || true)
    kill -9 "$2" $children
    echo
}
free_ports() {
    python -c "
import socket
probes = [socket.socket() for _ in range($1)]
for probe in probes: probe.bind(('127.0.0.1', 0))
print(*(probe.getsockname()[1] for probe in probes))"
}
until_there_is() {
    waited=0
    until eval "$1"; do
        waited=$((waited + 1))
        if [ "$waited" -gt 600 ] || grep -q "exit status" "$T/run.log"; then
            echo "never: $1"
            cat "$T/run.log"
            exit 1
        fi
        sleep 1
    done
}

touch "$T/run.log"
cp "$SCRIPTS/faults.toml" "$T/experiment.toml"
read -r port superlink one two three <<<"$(free_ports 5)"
(cd "$T" && fedsim deploy init kit --clients "$CLIENTS" --server-address 127.0.0.1 --port "$port" \
    --superlink-port "$superlink" --listen 127.0.0.1 >/dev/null)
client=0
for node_port in $(echo "$one $two $three" | cut -d' ' -f"1-$CLIENTS"); do
    place=$T/kit/clients/client-$client
    sed -i "s/^NODE_PORT=.*/NODE_PORT=$node_port/" "$place/settings.env"
    # An experiment with noise from the seed, on records that are public.
    sed -i -e 's/^consent = .*/consent = "adversary,central,challenge,experiment"/' \
        -e 's/^max-trials = .*/max-trials = 2/' "$place/node.toml"
    client=$((client + 1))
done
# Of three neither the adversary nor the challenge's client.
other=$(cd "$T" && python -c "
from pathlib import Path
from fedsim.configuration.files import load
from fedsim.game import challenge
whole = load(Path('experiment.toml'), {'federation.clients': $CLIENTS})
chosen = challenge.choose(whole)
print(*({0, 1, $CLIENTS - 1} - {chosen.adversary, chosen.client}), 1)" | cut -d' ' -f1)
sh "$T/kit/server/start.sh" >/dev/null
until (cd "$T" && fedsim deploy register kit >/dev/null 2>&1); do sleep 1; done
RUN="fedsim deploy run kit experiment.toml --experiment --quiet$SETTINGS --out run"

if [ "$PART" = partition ]; then
    victim=$((1 - other))
    on "sed -i 's/^partition-id = .*/partition-id = $victim/' kit/clients/client-$other/node.toml"
fi
for place in "$T"/kit/clients/*; do sh "$place/start.sh" >/dev/null; done

case "$PART" in
partition)
    on "$RUN"
    ;;
superlink)
    echo "\$ $RUN"
    run_beside &
    until_there_is '[ -f "$T/run/batches/000000.npz" ]'
    until_there_is 'grep -q "\"batch\": 1, " "$T/run/ledger.jsonl"'
    killed "the SuperLink, in the second of two batches of trials" "$(cat "$T/kit/server/superlink.pid")"
    wait
    cat "$T/run.log"
    echo
    on "sh kit/server/start.sh"
    # The clients' nodes notice by themselves; the dead run's processes let go of the directory.
    : >"$T/run.log"
    until_there_is '[ "$(cd "$T" && fedsim deploy check kit --machine server | grep -c "is connected")" = "$CLIENTS" ]'
    on "$RUN && echo done"
    on "rm -rf inprocess; fedsim run experiment.toml --quiet --out inprocess && echo done"
    on "python '$SCRIPTS/same_report.py' run inprocess" | sed "s#$SCRIPTS/##"
    ;;
supernode)
    echo "\$ $RUN"
    run_beside &
    until_there_is 'grep -q "\"round\": 0" "$T/run/events.jsonl" 2>/dev/null'
    killed "client-$other's SuperNode, in the first round" \
        "$(cat "$T/kit/clients/client-$other/supernode.pid")"
    wait
    cat "$T/run.log"
    echo
    on "grep dropped run/events.jsonl"
    on "grep -o '\"participants\": 2' run/ledger.jsonl"
    ;;
esac
