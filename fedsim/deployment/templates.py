"""The texts of a deployment kit: scripts, units, settings.

`@NAME@` is replaced when the kit is written. Scripts are plain sh. A machine's own choices are in
its settings.env and, for a node, its node.toml.
"""

from collections.abc import Mapping

SCRIPT_HEAD = """\
#!/bin/sh
# Written by `fedsim deploy init`. To change something, edit settings.env@OWN@.
set -eu
HERE=$(CDPATH= cd -- "$(dirname -- "$0")" && pwd)
. "$HERE/settings.env"
if [ -n "$BIN" ]; then PATH="$BIN:$PATH"; fi
export PATH
umask 077
mkdir -p "$HERE/flower" "$HERE/state" "$HERE/logs" "$HERE/work"
# Flower's processes import from their working directory before they import from the app.
cd "$HERE/work"

# Whether a process belongs to this folder: the number in an old file may belong to another.
ours() { ps -ww -p "$1" -o args= 2>/dev/null | grep -qF "$HERE/"; }

# start NAME LINE: start a service, and wait until its log has the line that says it is ready.
start() {
    name=$1; ready=$2; log="$HERE/logs/$name.log"
    if [ -f "$HERE/$name.pid" ] && ours "$(cat "$HERE/$name.pid")"; then
        echo "$name is running already (process $(cat "$HERE/$name.pid"))"
        return
    fi
    : >>"$log"
    before=$(wc -c <"$log")
    nohup "$HERE/start.sh" "$name" >>"$log" 2>&1 </dev/null &
    pid=$!
    echo "$pid" >"$HERE/$name.pid"
    tries=0
    until tail -c "+$((before + 1))" "$log" | grep -q "$ready"; do
        if tail -c "+$((before + 1))" "$log" | grep -q "it starts again in"; then
            echo "$name does not start, and tries again every few seconds (logs/$name.log);" \\
                "run fedsim deploy check $HERE for the reason" >&2
            exit 1
        fi
        # While it becomes another program its arguments are hidden, but its state is not.
        case "$(ps -o stat= -p "$pid")" in "" | Z*)
            echo "$name has ended (logs/$name.log);" \\
                "run fedsim deploy check $HERE for the reason" >&2
            exit 1 ;;
        esac
        if [ "$tries" -gt 480 ]; then
            echo "$name is not ready after two minutes (logs/$name.log), and keeps trying;" \\
                "run fedsim deploy check $HERE for the reason" >&2
            exit 1
        fi
        tries=$((tries + 1))
        sleep 0.25
    done
    echo "$name started (process $pid, logs/$name.log)"
}
"""

SERVER_SCRIPT = """
run_superlink() {
    exec fedsim deploy superlink "$HERE/"
}
run_proxy() {
    exec fedsim deploy proxy "$HERE/" --listen "$LISTEN" --port "$PORT" \\
        --superlink-port "$SUPERLINK_PORT"
}
case "${1:-}" in
    superlink) run_superlink ;;
    proxy) run_proxy ;;
    "")
        start superlink "Uvicorn running on"
        start proxy "passes the Fleet API"
        ;;
    *) echo "usage: start.sh [superlink|proxy]" >&2; exit 2 ;;
esac
"""

NODE_SCRIPT = """
run_supernode() {
    exec nice -n "$NICE" fedsim deploy supernode "$HERE/"
}
case "${1:-}" in
    supernode) run_supernode ;;
    "") start supernode "SuperNode ID" ;;
    *) echo "usage: start.sh [supernode]" >&2; exit 2 ;;
esac
"""

STOP_SCRIPT = """\
#!/bin/sh
# Written by `fedsim deploy init`. Stops the services of start.sh, in order.
set -u
HERE=$(CDPATH= cd -- "$(dirname -- "$0")" && pwd)
# Whether a process belongs to this folder: the number in an old file may belong to another.
ours() { ps -ww -p "$1" -o args= 2>/dev/null | grep -qF "$HERE/"; }
for name in @SERVICES@; do
    [ -f "$HERE/$name.pid" ] || continue
    pid=$(cat "$HERE/$name.pid")
    if ours "$pid"; then
        kill "$pid" 2>/dev/null || true
        waited=0
        while ours "$pid" && [ "$waited" -lt 100 ]; do
            waited=$((waited + 1))
            sleep 0.2
        done
        if ours "$pid"; then kill -9 "$pid" 2>/dev/null || true; fi
        echo "$name stopped"
    else
        echo "$name was not running"
    fi
    rm -f "$HERE/$name.pid"
done
# A process of the app may hang when its server vanishes, and outlive the service.
# The folder itself is compared: another machine's may have the same path in a namespace of its own.
for process in /proc/[0-9]*; do
    [ "$process/cwd" -ef "$HERE/work" ] 2>/dev/null || continue
    if ps -ww -p "${process#/proc/}" -o args= | grep -q -e "flwr-" -e "fedsim deploy super"; then
        kill -9 "${process#/proc/}" 2>/dev/null || true
    fi
done
"""

SERVER_SETTINGS = """\
# The server's settings, for start.sh. The address and port must be those in the kit.
# BIN: the bin folder of the Python environment with fedsim; empty if it is on the PATH.
BIN=
# Port for the clients: the proxy, which passes only the Fleet API.
LISTEN=@LISTEN@
PORT=@PORT@
# The SuperLink itself, on 127.0.0.1 only.
SUPERLINK_PORT=@SUPERLINK_PORT@
"""

NODE_SETTINGS = """\
# This node's settings, for start.sh. Its data and consent are in node.toml.
# BIN: the bin folder of the Python environment with fedsim; empty if it is on the PATH.
BIN=
# The server, by a name in its certificate.
SUPERLINK=@ADDRESS@:@PORT@
# Port for the node's own processes, on 127.0.0.1. Each node of one machine needs another one.
NODE_PORT=@NODE_PORT@
# Priority below other programs of this machine: from 0, equal, to 19, lowest.
NICE=@NICE@
# Time limit of a message's process, in seconds. A process that exceeds it is killed with all its
# children. A node has one such process at a time. At most federation.timeout: the server reads
# no later answer.
DEADLINE=@DEADLINE@
"""

CLIENT_CONFIG = """\
# The app's settings for this node, which only you can change. Relative paths begin in work/.
partition-id = @PARTITION@
num-partitions = @CLIENTS@

# Folder or file of your records, which the schema below describes. It replaces data.root here.
data-path = "../data"

# Copy of the schema that all clients agreed on. Without it, the node answers no training on your
# records. It refuses a run with another schema. `fedsim deploy check` compares the records with it.
# schema-path = "../schema.toml"

# Folder of this node's own ledger of all its answers, and of an adversary's memory. Never empty it:
# what the ledger lists was released, and stays released.
state-path = "../state"

# This node's own key, and the folder of all clients' public keys. In secure aggregation, the node
# refuses keys of other clients that these do not sign. Without this folder a single message counts
# towards epsilon-limit as if the server could read it. A client with a new node key must send its
# node.key.pub to all other clients.
key-path = "../node.key"
peers-path = "../peers"

# Your consent, separated by commas. Plain training with your own noise needs none.
#   central       the server sees sums of your records without noise, and is trusted to add noise
#   challenge     a run may train with and without one of your records; an adversary guesses which
#   adversary     this node may be the adversary, about other clients' records; its findings leave
#                 without noise (with experiment), unless the server itself is the adversary
#   oracle        a run may measure gradients of your records without noise (with experiment)
#   canaries      a run may add crafted records to yours
#   experiment    your records are public or made for tests: noise need not protect them, and
#                 nothing is charged below
consent = ""

# Largest number of trainings on your records in one run. Each of them releases as much again.
max-trials = 1

# Largest epsilon of any one of your records, at this delta, over all runs of all servers, whichever
# records they select. Beyond it the node answers nothing. It refuses a round before it computes it.
# These values suffice for one run of the server's deployment.toml. Choose a delta far below one
# over the number of your records. `fedsim deploy check` reports the spent epsilon.
epsilon-limit = 2.2
delta-limit = 1e-5

# Plants crafted records among yours, for an auditor who knows this seed. A coin decides for each
# of them whether a training uses it. It needs "canaries" above. Draw a new seed for each training:
# a seed always plants the same canaries. Tell it only to the auditor: docs/how-to/live-audit.md.
# canary-seed = 0
# canary-count = 100
"""

AUDITOR_CONFIG = """\
# The app's settings for this node, which holds no records. Relative paths begin in work/.
role = "auditor"

# Folder of the transcripts, RUN_ID.fedt. They reveal facts about people: keep them private (0700).
transcript-path = "../transcripts"
"""

INSTALL_SCRIPT = """\
#!/bin/sh
# Written by `fedsim deploy init`. Run it as root, once. It makes an account for the node, a Python
# environment in this folder, and the systemd units, and starts them.
# usage: install.sh WHEEL SHA256   of fedsim; the SHA-256 as received by another channel.
set -eu
if [ ! -f "${1:-}" ]; then
    echo "usage: install.sh WHEEL SHA256, the wheel of fedsim @VERSION@ and its SHA-256" >&2
    exit 2
fi
WHEEL=$(realpath "$1")
found=$(sha256sum "$WHEEL" | cut -d " " -f 1)
if [ "${2:-}" != "$found" ]; then
    echo "install.sh: the SHA-256 of $WHEEL is $found; give the SHA-256 that you received," \\
        "which must be the same" >&2
    exit 2
fi
HERE=$(CDPATH= cd -- "$(dirname -- "$0")" && pwd)
cd "$HERE"
PYTHON=${PYTHON:-python3}
if ! "$PYTHON" -c "import sys; sys.exit(sys.version_info < (3, 11))"; then
    echo "install.sh: $PYTHON is not Python 3.11 or later; write PYTHON=/its/path before sh" >&2
    exit 2
fi
umask 022
id -u fedsim >/dev/null 2>&1 ||
    useradd --system --no-create-home --home-dir "$HERE" --shell /bin/false fedsim
"$PYTHON" -m venv venv
venv/bin/pip install --quiet --upgrade "$WHEEL" "flwr==@FLOWER@"
sed -i "s|^BIN=.*|BIN=$HERE/venv/bin|" settings.env
for unit in @UNITS@; do
    sed -i -e "s|^ExecStart=.*/start.sh|ExecStart=/bin/sh $HERE/start.sh|" \\
        -e "s|^ReadWritePaths=.*|ReadWritePaths=$HERE|" "$unit.service"
    install -m 644 "$unit.service" "${UNITS:-/etc/systemd/system}/"
done
# Only the owner of the records decides who may read them.
find . -path "./data/*" -prune -o -exec chown -h fedsim: {} +
systemctl daemon-reload
systemctl enable @UNITS@
systemctl restart @UNITS@
"""

UNIT = """\
[Unit]
Description=fedsim: @DESCRIPTION@
# A server refuses nodes whose clock differs from its own.
After=network-online.target time-sync.target
Wants=network-online.target time-sync.target
StartLimitIntervalSec=0

[Service]
# Wait up to two minutes until NTP has set the clock; then start anyway.
ExecStartPre=-/bin/sh -c 'timeout 120 sh -c "until timedatectl show -p NTPSynchronized \\
    | grep -q yes; do sleep 2; done"'
TimeoutStartSec=300
# The folder of this machine, as install.sh sets it.
ExecStart=/bin/sh @FOLDER@/start.sh @NAME@
User=fedsim
UMask=0077
# The service itself starts its processes again; this is for its own end.
Restart=always
RestartSec=5
# Share of the machine's memory. To change it: systemctl edit @UNIT@
MemoryMax=@MEMORY@
NoNewPrivileges=true
CapabilityBoundingSet=
RestrictSUIDSGID=true
LockPersonality=true
PrivateTmp=true
ProtectProc=invisible
ProtectControlGroups=true
ProtectHostname=true
ProtectKernelLogs=true
ProtectKernelModules=true
ProtectKernelTunables=true
ProtectSystem=strict
ProtectHome=read-only
RemoveIPC=true
RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX
RestrictNamespaces=true
RestrictRealtime=true
SystemCallArchitectures=native
ReadWritePaths=@FOLDER@

[Install]
WantedBy=multi-user.target
"""


def fill(template: str, values: Mapping[str, str]) -> str:
    for name, value in values.items():
        template = template.replace(f"@{name}@", value)
    return template
