"""README.md of a kit: what to do on which machine, in order, for who administers and programs not.

`@NAME@` is replaced when the kit is written.
"""

README = """\
# A federation of @CLIENTS@ clients at @ADDRESS@:@PORT@

Written by fedsim @VERSION@ for Flower @FLOWER@. Each machine gets one folder and no other, and runs
Linux with Python 3.11 or later. Once the folders are there, @COMMANDS@ commands start the whole
federation: 4 on the server, 2 on every other machine.

## Hand out the folders

```sh
# On every machine: mkdir -p /etc/fedsim
scp -pr server @ADDRESS@:/etc/fedsim/
@COPIES@
```

A key travels with its folder, and `install.sh` runs as root: use a channel that you trust. `ca/`
stays here, off all machines of the federation: `ca/ca.key` makes the server's next certificate.
Every `*.key` is a secret (0600). Tell every administrator, on another way than the folder's, the
SHA-256 of the program:

```
@SHA256@
```

## The server

```sh
sudo sh /etc/fedsim/server/install.sh @SHA256@
cd /etc/fedsim/server
sudo -u fedsim venv/bin/fedsim deploy register .    # every key of keys/; again after a change
sudo -u fedsim venv/bin/fedsim deploy check .       # what is wrong, and how to mend it
sudo -u fedsim venv/bin/fedsim deploy train . deployment.toml \\
    --set federation.clients=@CLIENTS@ --out runs/first
```

The last one when the clients are there, which `venv/bin/fedsim deploy status .` says. It trains one
model and keeps it, within what clients allow at first; name your own data in `deployment.toml`, or
give another file (`docs/how-to/train.md`). `fedsim deploy run . deployment.toml` with the same
options is a training with an adversary in it. What either writes must lie in this folder.
`install.sh` starts the SuperLink and the proxy (units fedsim-superlink, fedsim-proxy), which are
there again after a restart of the machine.

Port @PORT@ must be open to the clients. The SuperLink's own port @SUPERLINK_PORT@ listens on
127.0.0.1 only and must stay closed: Flower's Control API asks nobody who they are. Who can log in
to the server can submit code to every client: let no one else have an account there.

## Each client

Say in `/etc/fedsim/client-K/node.toml` where the data lie and what you consent to. The account
`fedsim`, which `install.sh` makes, must be able to read them; `data/` itself is left as it is.

```sh
sudo sh /etc/fedsim/client-0/install.sh @SHA256@
sudo -u fedsim /etc/fedsim/client-0/venv/bin/fedsim deploy check /etc/fedsim/client-0
```

The clock must be kept by NTP: a server refuses a node that is 5 s ahead of it. After a change of
`node.toml`: `systemctl restart fedsim-client-0`. A client who wants a key that nobody else has ever
held, or another one than the one that it has, gives `fedsim deploy rotate /etc/fedsim/client-0`.

@AUDITOR@## Later

- Before the server's certificate ends, which `deploy status` tells: `fedsim deploy renew KIT` here,
  then copy `server.key` and `server.crt` to the server's folder.
- A new key of a node: `fedsim deploy rotate FOLDER` on its machine, which says what to send.
- Another version of the program, and whatever goes wrong: `docs/how-to/runbook.md` of fedsim.

## Otherwise

Without root or systemd: `python3 -m venv venv && venv/bin/pip install ./@WHEEL@ flwr==@FLOWER@` in
the folder, `BIN` in `settings.env` set to its `venv/bin`, then `sh start.sh` and `sh stop.sh`; so
all of it can be tried on one machine. No other program of the name will do: the package index has
one.

In containers: `docker compose up -d --build` in a machine's folder, in place of `install.sh`, and
`docker compose exec superlink fedsim deploy register /etc/fedsim/server`, or another command.

Tried: `start.sh` and `stop.sh` on a network of their own, `install.sh` but for `systemctl`, the
units by `systemd-analyze verify`. Not tried: the units under systemd, the images, `nginx.conf`, and
any of it on machines of their own.
"""

AUDITOR = """\
### The auditor

One more node, which is sent what every client is sent and answers with nothing. It may join and
leave at any time, also during a run:

```sh
sudo sh /etc/fedsim/auditor/install.sh @SHA256@
sudo -u fedsim /etc/fedsim/auditor/venv/bin/fedsim deploy check /etc/fedsim/auditor
```

To watch a training, on the same machine; SEEDS has a line for each client that plants canaries, its
canary-seed and canary-count. Texts (canary-kind) have text behind them, and take a copy of the
decoder: --weights DIRECTORY. An experiment's challenge takes a copy of its data: --data-root DATA.

```sh
cd /etc/fedsim/auditor
fedsim audit live transcripts
fedsim audit live transcripts --canary-seed-file SEEDS
```

It goes on from run to run until it is stopped, with `--once` to the end of one;
`fedsim audit transcript transcripts` audits a run that has ended. The report lies beside the
transcript. In a container the node records; audit with an installed fedsim, for that needs PyTorch.

"""
