#!/bin/bash
# The server and every client in a network namespace of its own: keys, start, run, and what is refused.
#
# usage (as root): namespaces.sh NEW_FOLDER [PYTHON_BIN_FOLDER]
# Each machine has an address on a bridge, and sees of NEW_FOLDER only its own part, as fedsim/.
# Prints every command with the machine it was given on. Exit status 0: all went as it should.
set -eu
SCRIPTS=$(cd "$(dirname "$0")" && pwd)
T=$1
BIN=${2:-$(dirname "$(command -v fedsim)")}
PREFIX=fs$$
mkdir "$T"
T=$(cd "$T" && pwd)
mkdir "$T/machines" "$T/fedsim"
export PATH="$BIN:$PATH" PYTHONDONTWRITEBYTECODE=1 COLUMNS=100 TERM=dumb

finish() {
    for machine in client-0 client-1 intruder server; do
        if ip netns list | grep -qw "$PREFIX-$machine"; then
            for pid in $(ip netns pids "$PREFIX-$machine"); do kill "$pid" 2>/dev/null || true; done
        fi
    done
    sleep 2
    for machine in client-0 client-1 intruder server; do
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
for machine in client-0 client-1 intruder; do
    ip netns add "$PREFIX-$machine"
    ip -n "$PREFIX-$machine" link add eth0 type veth peer name "v$number" netns "$PREFIX-server"
    ip -n "$PREFIX-server" link set "v$number" master bridge up
    ip -n "$PREFIX-$machine" addr add "10.77.0.$number/24" dev eth0
    ip -n "$PREFIX-$machine" link set eth0 up
    ip -n "$PREFIX-$machine" link set lo up
    number=$((number + 1))
done

here fedsim deploy init kit --clients 2 --server-address 10.77.0.1
cp -a "$T/kit/server" "$T/machines/server"
cp -a "$T/kit/clients/client-0" "$T/kit/clients/client-1" "$T/machines/"
cp -a "$T/kit/clients/client-1" "$T/machines/intruder"
cp "$SCRIPTS/training.toml" "$SCRIPTS/digits.toml" "$T/machines/server/"
here python "$SCRIPTS/own_digits.py" machines/server/public machines/client-0/data \
    machines/client-1/data | sed "s#$SCRIPTS/##"

on server sh start.sh
until quietly server 'fedsim deploy register .' >/dev/null 2>&1; do sleep 1; done
on server fedsim deploy register .
for client in client-0 client-1; do
    on $client ls
    on $client sh start.sh
done
sleep 3
on client-0 fedsim deploy check .
on server fedsim deploy check .
on server fedsim deploy train . training.toml --out model
on server "grep -A 8 '## Privacy' model/public/MODEL_CARD.md"
on server "fedsim predict model public | head -n 4"
on client-0 "fedsim deploy check . | grep budget"

echo "# What must not work: a key that nobody registered, the SuperLink's own port, its Control API."
on intruder "ssh-keygen -q -t ecdsa -b 384 -N '' -C '' -f new && mv new node.key && mv new.pub node.key.pub"
on intruder "timeout 120 sh start.sh supernode >log 2>&1; echo status \$?; grep -o 'Exit Code.*\\|\\[code.*' log" |
    tee "$T/intruder"
grep -q "Failed to activate SuperNode" "$T/intruder"
if grep -q "status 124\\|status 0" "$T/intruder"; then exit 1; fi
on client-0 "python -c 'import socket; socket.create_connection((\"10.77.0.1\", 8000), 5)' 2>&1 | tail -n 1" |
    tee "$T/superlink"
grep -q ConnectionRefusedError "$T/superlink"
on client-0 "python -c 'import httpx, ssl; print(httpx.post(\"https://10.77.0.1:8443/v1/control/list-runs\", verify=ssl.create_default_context(cafile=\"ca.crt\")))'" | tee "$T/control"
grep -q "403 Forbidden" "$T/control"

on client-0 sh stop.sh
on client-1 sh stop.sh
on server sh stop.sh
