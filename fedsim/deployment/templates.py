"""The texts of a deployment kit: scripts, units, containers, a proxy's configuration.

`@NAME@` is replaced when the kit is written. Scripts are plain sh; everything that a machine may
have to change for itself is in its settings.env and, for a node, its node.toml.
"""

from collections.abc import Mapping

SCRIPT_HEAD = """\
#!/bin/sh
# Written by `fedsim deploy init`. What may be changed is in settings.env@OWN@.
set -eu
HERE=$(CDPATH= cd -- "$(dirname -- "$0")" && pwd)
. "$HERE/settings.env"
if [ -n "$BIN" ]; then PATH="$BIN:$PATH"; fi
export PATH
umask 077
mkdir -p "$HERE/flower" "$HERE/state" "$HERE/logs" "$HERE/work"
# Flower's processes import from where they are started before they look into the app.
cd "$HERE/work"

# Whether a process is one of this folder's: the number in a file left behind may be another's.
ours() { ps -ww -p "$1" -o args= 2>/dev/null | grep -qF "$HERE/"; }

# start NAME LINE: begin a service, and wait until its log has the line that says it is ready.
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
        # While it becomes another program its arguments are not to be seen, but its state is.
        case "$(ps -o stat= -p "$pid")" in "" | Z*)
            echo "$name has ended (logs/$name.log); what is wrong: fedsim deploy check $HERE" >&2
            exit 1 ;;
        esac
        if [ "$tries" -gt 480 ]; then
            echo "$name is not ready after two minutes (logs/$name.log) and goes on trying;" \\
                "what is wrong: fedsim deploy check $HERE" >&2
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
# Written by `fedsim deploy init`. Ends what start.sh began, in order.
set -u
HERE=$(CDPATH= cd -- "$(dirname -- "$0")" && pwd)
# Whether a process is one of this folder's: the number in a file left behind may be another's.
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
# A process of the app may hang where a server vanished under it, and outlives what began it.
work=$(cd "$HERE/work" 2>/dev/null && pwd -P) || exit 0
for process in /proc/[0-9]*; do
    [ "$(readlink "$process/cwd" 2>/dev/null)" = "$work" ] || continue
    if ps -ww -p "${process#/proc/}" -o args= | grep -q "flwr-"; then
        kill -9 "${process#/proc/}" 2>/dev/null || true
    fi
done
"""

SERVER_SETTINGS = """\
# The server's settings, read by start.sh. The addresses are those of the kit's certificate.
# BIN: the bin folder of the Python environment with fedsim; empty if it is on the PATH.
BIN=
# Clients connect here, to the proxy that passes the Fleet API alone.
LISTEN=@LISTEN@
PORT=@PORT@
# The SuperLink itself, on 127.0.0.1 only.
SUPERLINK_PORT=@SUPERLINK_PORT@
"""

NODE_SETTINGS = """\
# This node's settings, read by start.sh. Its data and consent are in node.toml.
# BIN: the bin folder of the Python environment with fedsim; empty if it is on the PATH.
BIN=
# The server, by a name that its certificate has.
SUPERLINK=@ADDRESS@:@PORT@
# Where the node serves its own processes, on 127.0.0.1; another for each node of one machine.
NODE_PORT=@NODE_PORT@
# How far the node steps back for other programs of this machine: 0 not at all, 19 wholly.
NICE=@NICE@
# Seconds that the process of a message has; then it is killed with all that it started. A node has
# one such process at a time. Not below federation.timeout of a run, for which the server waits.
DEADLINE=@DEADLINE@
"""

CLIENT_CONFIG = """\
# What the app is told of this node, and by nobody but you. Relative paths begin in work/.
partition-id = @PARTITION@
num-partitions = @CLIENTS@

# The folder, or file, of your records, read by the schema below; it replaces data.root here.
data-path = "../data"

# A copy of the schema that all clients agreed upon: without it no training on your records is
# answered, a run with another one is refused, and `fedsim deploy check` looks whether they fit it.
# schema-path = "../schema.toml"

# Where this node keeps its own ledger, of every answer it ever gave, and an adversary's memory.
# Never empty it: what is entered there was released, and stays so.
state-path = "../state"

# What you agree to, with commas between. Plain training with noise of your own needs nothing.
#   central       the server sees clean sums of your records, and is trusted to add the noise
#   challenge     a run may train with and without one of them, and an adversary tells which
#   adversary     this node may be the adversary, about records of others: towards the server, which
#                 plays itself, and otherwise what it finds leaves without noise (with experiment)
#   oracle        a run may read gradients of yours without noise, to measure (with experiment)
#   canaries      records made up for a test are added to yours
#   measures      a share of your records is held back from every training; after its last round you
#                 say once, under noise, how the model answers for them (the two keys at the end)
#   experiment    your records are public or made for tests: noise may hide nothing, and nothing is
#                 charged below
consent = ""

# How many trainings of your records one run may make: each of them releases as much again.
max-trials = 1

# What all runs together, whoever starts them and whatever of your data they pick, may cost any one
# of your records: beyond this epsilon at this delta nothing is answered, and a round is refused
# before it is computed. What is written here is enough for one run of the server's deployment.toml.
# Take a delta far below 1 / your records. `fedsim deploy check` says what is spent.
epsilon-limit = 2.2
delta-limit = 1e-5

# Plants made-up records among yours, each in a training or not by a coin, for an auditor who knows
# this seed; it needs "canaries" above. Draw a new one for each training, since a seed plants the
# same again, and tell nobody else: docs/how-to/live-audit.md.
# canary-seed = 0
# canary-count = 100
# canary-kind = "text"      # of a decoder: texts of random tokens

# With "measures" above: the share of your records that is held back, at most 0.5, and the epsilon
# that one answer may cost at most. It is added to what the rounds cost, of epsilon-limit.
# measures-share = 0.2
# measures-epsilon = 1.0
"""

AUDITOR_CONFIG = """\
# What the app is told of this node: it holds no records. Relative paths begin in work/.
role = "auditor"

# Where every run is recorded, as RUN_ID.fedt. It tells of people: keep it to yourself (0700).
transcript-path = "../transcripts"
"""

INSTALL_SCRIPT = """\
#!/bin/sh
# Written by `fedsim deploy init`. As root, once, and again after an upgrade: an account for the
# node alone, a Python environment in this folder, the systemd units, which are started.
# usage: install.sh SHA256   of the wheel, as it was told on another way than this folder came.
set -eu
HERE=$(CDPATH= cd -- "$(dirname -- "$0")" && pwd)
cd "$HERE"
WHEEL=@WHEEL@
found=$(sha256sum "$WHEEL" | cut -d " " -f 1)
if [ "${1:-}" != "$found" ]; then
    echo "install.sh: the SHA-256 of $WHEEL is $found: give the one that you were told," \\
        "which must be the same" >&2
    exit 2
fi
PYTHON=${PYTHON:-python3}
if ! "$PYTHON" -c "import sys; sys.exit(sys.version_info < (3, 11))"; then
    echo "install.sh: $PYTHON is no Python 3.11 or later: give PYTHON=/its/path before sh" >&2
    exit 2
fi
umask 022
id -u fedsim >/dev/null 2>&1 ||
    useradd --system --no-create-home --home-dir "$HERE" --shell /bin/false fedsim
"$PYTHON" -m venv venv
venv/bin/pip install --quiet --upgrade "./$WHEEL" "flwr==@FLOWER@"
sed -i "s|^BIN=.*|BIN=$HERE/venv/bin|" settings.env
for unit in @UNITS@; do
    sed -i -e "s|^ExecStart=.*/start.sh|ExecStart=/bin/sh $HERE/start.sh|" \\
        -e "s|^ReadWritePaths=.*|ReadWritePaths=$HERE|" "$unit.service"
    install -m 644 "$unit.service" "${UNITS:-/etc/systemd/system}/"
done
# Whose the records are is their owner's to say.
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
# Up to two minutes for a clock that is not set by NTP yet; then it starts as it is.
ExecStartPre=-/bin/sh -c 'timeout 120 sh -c "until timedatectl show -p NTPSynchronized \\
    | grep -q yes; do sleep 2; done"'
TimeoutStartSec=300
# The folder of this machine, where install.sh found it.
ExecStart=/bin/sh @FOLDER@/start.sh @SERVICE@
User=fedsim
UMask=0077
# Flower ends a node that was refused as if it had been asked to.
Restart=always
# A node that was killed is taken for alive, and its key refused, for a minute.
RestartSec=70
# Of the machine's memory; another limit: systemctl edit @UNIT@
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

NGINX = """\
# Instead of `start.sh proxy`, where nginx is preferred: the Fleet API and nothing else.
# Include it inside http { }; the files must be readable for nginx alone.
server {
    listen @PORT@ ssl;
    server_name @ADDRESS@;
    ssl_certificate /etc/fedsim/server/server.crt;
    ssl_certificate_key /etc/fedsim/server/server.key;
    client_max_body_size 1g;
    location ~ ^/v1/fleet/[a-z-]+$ {
        limit_except POST { deny all; }
        proxy_pass https://127.0.0.1:@SUPERLINK_PORT@;
        proxy_ssl_trusted_certificate /etc/fedsim/server/superlink-ca.crt;
        proxy_ssl_verify on;
        proxy_ssl_name localhost;
        proxy_http_version 1.1;
        proxy_request_buffering off;
        proxy_buffering off;
        proxy_read_timeout 300s;
    }
    location / { return 403; }
}
"""

COMPOSE_HEAD = """\
# In this folder: docker compose up -d --build
# The folder must be of the user of the containers: chown -R 1000:1000 . (or FEDSIM_USER=UID:GID).
# Data, ledger and logs stay in it, so that nothing that Docker removes forgets what was spent.
services:
"""

COMPOSE_SERVICE = """\
  @NAME@:
    image: fedsim-@IMAGE@:@VERSION@
    build:
      context: .
      target: @IMAGE@
@ARGUMENTS@    user: ${FEDSIM_USER:-1000:1000}
    # The SuperLink, and a node's own port, are on the loopback of their machine, and of no other.
    network_mode: host
    restart: always
    init: true
    read_only: true
    tmpfs: [/tmp]
    cap_drop: [ALL]
    security_opt: ["no-new-privileges:true"]
    mem_limit: @LIMIT@
    logging: {driver: local}
    command: ["sh", "/etc/fedsim/@MACHINE@/start.sh", "@NAME@"]
    volumes:
      - .:/etc/fedsim/@MACHINE@
@DATA@    healthcheck:
      test:
        - CMD-SHELL
        - >-
          . /etc/fedsim/@MACHINE@/settings.env &&
          python -c "import socket; socket.create_connection(('@HOST@', $$@PORT_NAME@), 3)"
"""

COMPOSE_ARGUMENTS = """\
      # PyTorch for processors; for a GPU cu128, or what else uv calls your version of CUDA.
      args:
        TORCH_BACKEND: ${FEDSIM_TORCH:-cpu}
"""

COMPOSE_DATA = """\
      # Records elsewhere: FEDSIM_DATA=/folder, and data-path = "../data" in node.toml as it is.
      - ${FEDSIM_DATA:-./data}:/etc/fedsim/@MACHINE@/data:ro
"""

DOCKERIGNORE = """\
# The image is built of the program alone: no key, setting or record is sent to the builder.
*
!*.whl
"""

DOCKERFILE = """\
# Written by `fedsim deploy init`. compose.yaml builds the stages that this machine's services need:
# "light" relays and records, "full" trains. No image holds a key, a setting or a record.
FROM python:3.11-slim AS light
COPY @WHEEL@ /opt/
RUN pip install --no-cache-dir --no-deps /opt/@WHEEL@ \\
    && pip install --no-cache-dir @LIGHT@
RUN useradd --uid 1000 --no-create-home fedsim
USER fedsim

FROM light AS full
# PyTorch for processors, far smaller than for GPUs (cu128, ...); uv knows where each is.
ARG TORCH_BACKEND=cpu
USER root
RUN pip install --no-cache-dir uv \\
    && uv pip install --system --no-cache --torch-backend "$TORCH_BACKEND" @TORCH@ \\
    && pip install --no-cache-dir /opt/@WHEEL@
USER fedsim
"""


def fill(template: str, values: Mapping[str, str]) -> str:
    """Return a text with its placeholders replaced.

    Args:
        template: with @NAME@ for each.
    """
    for name, value in values.items():
        template = template.replace(f"@{name}@", value)
    return template
