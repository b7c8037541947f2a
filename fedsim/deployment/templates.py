"""The texts of a deployment kit: scripts, units, a proxy's configuration, and what to do where.

`@NAME@` is replaced when the kit is written. Scripts are plain sh; everything that a machine may
have to change for itself is in its settings.env and, for a node, its node.toml.
"""

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
"""

CLIENT_CONFIG = """\
# What the app is told of this node, and by nobody but you. Relative paths begin in work/.
partition-id = @PARTITION@
num-partitions = @CLIENTS@

# The folder, or file, of the data that the run's configuration names; it replaces data.root here.
data-path = "../data"

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
# this seed; it needs "canaries" above. Draw your own, and tell nobody else: docs/live-audit.md.
# canary-seed = 0
# canary-count = 100
"""

AUDITOR_CONFIG = """\
# What the app is told of this node: it holds no records. Relative paths begin in work/.
role = "auditor"

# Where every run is recorded, as RUN_ID.fedt. It tells of people: keep it to yourself (0700).
transcript-path = "../transcripts"
"""

UNIT = """\
[Unit]
Description=fedsim: @DESCRIPTION@
# A server refuses nodes whose clock differs from its own.
After=network-online.target time-sync.target
Wants=network-online.target time-sync.target
StartLimitIntervalSec=0

[Service]
# The folder of this machine as it was copied; see README.md.
ExecStart=/bin/sh @FOLDER@/start.sh @SERVICE@
User=fedsim
UMask=0077
# Flower ends a node that was refused as if it had been asked to.
Restart=always
# A node that was killed is taken for alive, and its key refused, for a minute.
RestartSec=70
NoNewPrivileges=true
CapabilityBoundingSet=
RestrictSUIDSGID=true
LockPersonality=true
PrivateTmp=true
ProtectProc=invisible
ProtectControlGroups=true
ProtectKernelModules=true
ProtectKernelTunables=true
ProtectSystem=strict
ProtectHome=read-only
RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX
RestrictNamespaces=true
ReadWritePaths=@WRITABLE@

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
# One profile for each machine: docker compose --profile client-0 up -d
services:
"""

DOCKERFILE = """\
# The image that compose.yaml names: docker build -t fedsim:@VERSION@ .
FROM python:3.11-slim
RUN apt-get update && apt-get install -y --no-install-recommends procps \\
    && rm -rf /var/lib/apt/lists/*
COPY server/@WHEEL@ /tmp/
RUN echo "@SHA256@  /tmp/@WHEEL@" | sha256sum -c - \\
    && pip install --no-cache-dir /tmp/@WHEEL@
"""

COMPOSE_SERVICE = """\
  @NAME@:
    image: ${FEDSIM_IMAGE:-fedsim:@VERSION@}
    profiles: ["@MACHINE@"]
    # The SuperLink is on the loopback of the proxy's machine, and of no other.
    network_mode: host
    restart: always
    command: ["sh", "/etc/fedsim/@MACHINE@/start.sh", "@SERVICE@"]
    volumes: ["./@PLACE@:/etc/fedsim/@MACHINE@"]
"""

README = """\
# A federation of @CLIENTS@ clients at @ADDRESS@:@PORT@

Written by fedsim @VERSION@ for Flower @FLOWER@. Every machine needs Python 3.11 or later with that
fedsim: the wheel in its folder, and no other program of the name (the package index has one). Where
the folder has arrived, install it after a look at its SHA-256, which is best told on another way:

```sh
cd /etc/fedsim/MACHINE
echo "@SHA256@  @WHEEL@" | sha256sum -c - &&
    pip install ./@WHEEL@
```

`ca/ca.key` and every `*.key` are secrets (0600). Keep `ca/` off all machines of the federation:
it is needed only to make a new server certificate. Each machine gets one folder and no other.

Before the server's certificate expires (`fedsim deploy check` says when), where this kit is:

```sh
fedsim deploy renew KIT      # with a certificate of your own: --certificate FILE --key FILE
scp -p KIT/server/server.key KIT/server/server.crt @ADDRESS@:/etc/fedsim/server/
```

The proxy takes it up within a minute, and no node has to know.

## 1. Hand out the folders

```sh
# On every machine: mkdir -p /etc/fedsim
scp -pr server/ @ADDRESS@:/etc/fedsim/
@COPIES@
```

A key travels with its folder: use a channel that you trust. A client who wants a key that nobody
else has ever held makes its own (`ssh-keygen -t ecdsa -b 384 -N "" -f node.key`) and sends back
`node.key.pub`, which replaces `server/keys/client-K.pub`. If the server runs already, give
`fedsim deploy register` again: it lets the new key in and refuses the other from then on.

The systemd units run as the user `fedsim`, who must own the folder (`chown -R fedsim: FOLDER`):
`cp FOLDER/*.service /etc/systemd/system/ && systemctl enable --now fedsim-SERVICE`.

## 2. The server

```sh
sh /etc/fedsim/server/start.sh              # or the systemd units fedsim-superlink, fedsim-proxy
fedsim deploy register /etc/fedsim/server   # every key of server/keys; again after a change
fedsim deploy check /etc/fedsim/server
```

Port @PORT@ must be open to the clients. The SuperLink's own port @SUPERLINK_PORT@ listens on
127.0.0.1 only and must stay closed: Flower's Control API asks nobody who they are. Who can log in
to the server can submit code to every client: let no one else have an account there.

## 3. Each client

Have an account for the node alone: other accounts cannot take its work, but its own processes can.
Keep the clock by NTP: a server refuses a node that is 5 s ahead of it. Say in `node.toml` where the
data lie and what you consent to, then:

```sh
sh /etc/fedsim/client-0/start.sh             # waits until it is connected; or fedsim-supernode
fedsim deploy check /etc/fedsim/client-0     # what is wrong, and how to mend it
```

@AUDITOR@## 4. Run, on the server

```sh
cd /etc/fedsim/server
fedsim deploy run . deployment.toml --set federation.clients=@CLIENTS@ --out RUN
```

`/etc/fedsim/server/deployment.toml` is one training within what clients allow at first; name your
own data in it, or give another configuration.

Where systemd or a container runs the SuperLink, runs must lie in its folder and be its user's:
`sudo -u fedsim fedsim deploy run . deployment.toml --out /etc/fedsim/server/runs/RUN`,
or the same command in the container (`docker compose exec superlink ...`).

The report is `RUN/report.html`. The data of a run stay where they are; `data.root` is the server's
own copy of what it holds out for evaluation, and is told to nobody.

## 5. Stop

```sh
sh /etc/fedsim/client-0/stop.sh
sh /etc/fedsim/server/stop.sh
```

On one machine, to try it: all of the above with the folders where they are. `compose.yaml` starts
the same scripts in containers, one profile for each machine (image: see `Dockerfile`). The systemd
units, `compose.yaml`, `Dockerfile` and `nginx.conf` have not been tried on real machines.
"""

AUDITOR_README = """\
### The auditor

One more node, which is sent what every client is sent and answers with nothing. It may join and
leave at any time, also during a run:

```sh
sh /etc/fedsim/auditor/start.sh             # or the systemd unit fedsim-supernode
fedsim deploy check /etc/fedsim/auditor     # what is wrong, and how to mend it
```

To watch a training, on the same machine; SEEDS has a line for each client that plants canaries, its
canary-seed and canary-count. An experiment's challenge takes a copy of its data: --data-root DATA.

```sh
cd /etc/fedsim/auditor
fedsim audit --follow transcripts
fedsim audit --follow transcripts --canary-seed-file SEEDS
```

It goes on from run to run until it is stopped, with `--once` to the end of one. Without `--follow`
a run that has ended is audited. The report lies beside the transcript.

"""
