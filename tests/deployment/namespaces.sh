#!/bin/bash
# The server, three clients and an auditor, each in a network namespace of its own and with records
# that only it has. They train on tables, then on pictures while machines die and one client cheats.
#
# usage (as root): namespaces.sh NEW_FOLDER [PYTHON_BIN_FOLDER]
# Each machine has an address on a bridge, and sees of NEW_FOLDER only its own part, as fedsim/.
# Prints every command with the machine it was given on. Exit status 0: all went as it should.
set -eu
SCRIPTS=$(cd "$(dirname "$0")" && pwd)
T=$1
BIN=${2:-$(dirname "$(command -v fedsim)")}
PREFIX=fs$$
training=
mkdir "$T"
T=$(cd "$T" && pwd)
mkdir "$T/machines" "$T/fedsim"
CLIENTS="client-0 client-1 client-2"
OTHERS="$CLIENTS auditor intruder"
export PATH="$BIN:$PATH" PYTHONDONTWRITEBYTECODE=1 COLUMNS=100 TERM=dumb

finish() {
    for machine in $OTHERS server; do
        if ip netns list | grep -qw "$PREFIX-$machine"; then
            for pid in $(ip netns pids "$PREFIX-$machine"); do kill "$pid" 2>/dev/null || true; done
        fi
    done
    sleep 2
    for machine in $OTHERS server; do
        if ip netns list | grep -qw "$PREFIX-$machine"; then
            for pid in $(ip netns pids "$PREFIX-$machine"); do kill -9 "$pid" 2>/dev/null || true; done
            ip netns del "$PREFIX-$machine"
        fi
    done
}
trap finish EXIT

# The command as it is, on a machine: its own network, and only its own folder.
quietly() {
    machine=$1; shift
    ip netns exec "$PREFIX-$machine" unshare --mount sh -c '
        mount --bind "$1/machines/$2" "$1/fedsim" && mount -t tmpfs none "$1/machines" || exit 1
        cd "$1/fedsim" && shift 2 && exec sh -c "$*"' sh "$T" "$machine" "$@"
}
on() {
    machine=$1; shift
    echo "$machine\$ $*"
    # "|| status" keeps the session going where a refusal is what is expected.
    status=0
    quietly "$machine" "$*" 2>&1 || status=$?
    echo
    return $status
}
here() {
    echo "operator\$ $*"
    (cd "$T" && sh -c "$*" 2>&1)
    echo
}

# The wires: a bridge on the server's side, 10.77.0.1 the server, .10 and on the others.
ip netns add "$PREFIX-server"
ip -n "$PREFIX-server" link set lo up
ip -n "$PREFIX-server" link add bridge type bridge
ip -n "$PREFIX-server" addr add 10.77.0.1/24 dev bridge
ip -n "$PREFIX-server" link set bridge up
number=10
for machine in $OTHERS; do
    ip netns add "$PREFIX-$machine"
    ip -n "$PREFIX-$machine" link add eth0 type veth peer name "v$number" netns "$PREFIX-server"
    ip -n "$PREFIX-server" link set "v$number" master bridge up
    ip -n "$PREFIX-$machine" addr add "10.77.0.$number/24" dev eth0
    ip -n "$PREFIX-$machine" link set eth0 up
    ip -n "$PREFIX-$machine" link set lo up
    number=$((number + 1))
done

# A process of a machine, and those that it started, as the kernel would for want of memory.
killed() {
    echo "# kill -9 on $1: $2"
    process=$(cat "$T/machines/$1/$2.pid")
    kill -9 "$process" $(pgrep -P "$process" || true)
    echo
}
until_there_is() {
    waited=0
    until eval "$1"; do
        waited=$((waited + 1))
        # A training that ended by itself writes no more events.
        if [ "$waited" -gt 400 ] || { [ -n "$training" ] && ! kill -0 "$training" 2>/dev/null; }; then
            echo "never: $1"; cat "$T/train.log"; exit 1
        fi
        sleep 1
    done
}
connected() {
    until_there_is '[ "$(quietly server "fedsim deploy check ." | grep -c "client-.* is connected")" = 3 ]'
}
# Their nodes start at the same time.
start() {
    for machine in "$@"; do on "$machine" sh start.sh >"$T/$machine.log" & done
    wait
    for machine in "$@"; do cat "$T/$machine.log"; done
}
# A setting in a client's node.toml, as its owner edits it.
agree() { sed -i "s@^\(# \)*$2 = .*@$2 = $3@" "$T/machines/$1/node.toml"; }

here fedsim deploy init kit --clients 3 --server-address 10.77.0.1 --auditor
cp -a "$T/kit/server" "$T/kit/auditor" "$T/machines/"
for client in $CLIENTS; do cp -a "$T/kit/clients/$client" "$T/machines/"; done
cp -a "$T/kit/clients/client-1" "$T/machines/intruder"
cp "$SCRIPTS"/train-*.toml "$SCRIPTS/tumours.toml" "$SCRIPTS/digits.toml" "$T/machines/server/"
here python "$SCRIPTS/own_records.py" machines/server/public machines/client-0/data \
    machines/client-1/data machines/client-2/data | sed "s#$SCRIPTS/##"
for client in $CLIENTS; do
    agree $client data-path '"../data/tumours.csv"'
    cp "$SCRIPTS/tumours.toml" "$T/machines/$client/schema.toml"
    agree $client schema-path '"../schema.toml"'
    agree $client epsilon-limit 16.0
done
# The first client plants canaries, and tells the auditor their seed.
agree client-0 consent '"canaries"'
printf 'canary-seed = 20261123\ncanary-count = 400\n' >>"$T/machines/client-0/node.toml"
echo "20261123 400" >"$T/machines/auditor/seeds"
# The auditor steps back for clients of its machine (NICE=19), and here all are on one: it never came.
sed -i 's/^NICE=.*/NICE=0/' "$T/machines/auditor/settings.env"

on server sh start.sh
until_there_is 'quietly server "fedsim deploy register ." >/dev/null 2>&1'
on server fedsim deploy register .
start $CLIENTS auditor
on client-0 ls . data
connected
on client-0 fedsim deploy check .
on server fedsim deploy check .

echo "# Patients of three hospitals, in tables. First the rehearsal, on records that one machine may read."
echo
python "$SCRIPTS/own_records.py" "$T/pilot/public" "$T/pilot/client-0" "$T/pilot/client-1" "$T/pilot/client-2"
cp "$SCRIPTS"/*tumours.toml "$T/pilot/"
here "cd pilot && fedsim run train-tumours.toml data.root='client-{client}/tumours.csv' trials.count=200 --quiet --out ../rehearsal"
on server fedsim deploy train . train-tumours.toml --out tumours
on server "grep -A 8 '## Privacy' tumours/public/MODEL_CARD.md"
on server "fedsim predict tumours public/tumours.csv | head -n 3"
on auditor fedsim audit transcripts --canary-seed-file seeds --claimed-epsilon 6.001 --claimed-delta 1e-5
on server "fedsim account tumours | grep 'local .* server'"
on client-0 "fedsim deploy check . | grep budget"
on client-0 fedsim deploy report .

echo "# Handwritten digits. The second client's owner halves its noise on its own machine."
echo
for client in $CLIENTS; do
    quietly $client sh stop.sh
    agree $client data-path '"../data/digits.npz"'
    cp "$SCRIPTS/digits.toml" "$T/machines/$client/schema.toml"
done
mkdir "$T/machines/client-1/tampered"
cp "$SCRIPTS/half_noise.py" "$T/machines/client-1/tampered/sitecustomize.py"
echo 'export PYTHONPATH="$HERE/tampered"' >>"$T/machines/client-1/settings.env"
start $CLIENTS
connected
train="fedsim deploy train . train-digits.toml --quiet --out digits"
events=$T/machines/server/digits/events.jsonl
rounds() { cat "$events" 2>/dev/null | grep -c '"round": '; }
echo "server\$ $train"
quietly server "$train" >"$T/train.log" 2>&1 &
training=$!
until_there_is '[ "$(rounds)" -ge 2 ]'   # the first model, and round 1
killed client-2 supernode
until_there_is '[ "$(rounds)" -ge 4 ]'
killed server superlink
wait $training && exit 1
training=
cat "$T/train.log"
echo
on server sh start.sh
on client-2 sh start.sh
connected
echo "server\$ $train"
quietly server "$train" >"$T/train.log" 2>&1 &
training=$!
until_there_is '[ "$(grep -c '"'"'"phase": "training"'"'"' "$events")" = 2 ]'
killed client-2 supernode
ended=0
wait $training || ended=$?
[ "$ended" = 4 ]   # half of a client's noise is missing: an alarm
cat "$T/train.log"
echo
on server "grep -A 8 '## Privacy' digits/public/MODEL_CARD.md"
on server "grep dropped digits/events.jsonl"
on server "fedsim predict digits public/digits.npz | head -n 3"
on server 'python -c "import fedsim, torch; print(fedsim.load_model(\"digits\")(torch.zeros(1, 1, 8, 8)).shape)"'
# Flower counts the resumed training as another run: the auditor has a transcript of either.
for half in 2 1; do
    on auditor "fedsim audit \$(ls -dt transcripts/*.fedt | sed -n ${half}p) --canary-seed-file seeds; echo status \$?"
done
on client-0 "fedsim deploy check . | grep budget"

echo "# What must not work: a key that nobody registered, the SuperLink's own port, its Control API."
on intruder "ssh-keygen -q -t ecdsa -b 384 -N '' -C '' -f new && mv new node.key && mv new.pub node.key.pub"
on intruder "timeout 150 sh start.sh supernode >log 2>&1; grep -o '\\[code.*\\|SuperNode ID' log | sort -u" |
    tee "$T/intruder"
grep -q "Failed to activate SuperNode" "$T/intruder"
if grep -q "^SuperNode ID" "$T/intruder"; then exit 1; fi
on client-0 "python -c 'import socket; socket.create_connection((\"10.77.0.1\", 8000), 5)' 2>&1 | tail -n 1" |
    tee "$T/superlink"
grep -q ConnectionRefusedError "$T/superlink"
on client-0 "python -c 'import httpx, ssl; print(httpx.post(\"https://10.77.0.1:8443/v1/control/list-runs\", verify=ssl.create_default_context(cafile=\"ca.crt\")))'" | tee "$T/control"
grep -q "403 Forbidden" "$T/control"

for machine in $CLIENTS auditor server; do on $machine sh stop.sh || true; done
