"""README.md of a kit: instructions for each machine, in order, for administrators.

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

A key travels with its folder, and `install.sh` runs as root, so use a channel that you trust. `ca/`
stays here, off all machines of the federation: `ca/ca.key` makes the server's next certificate.
Every `*.key` is a secret (0600).

Every administrator also needs WHEEL, the program (fedsim @VERSION@), and its SHA256 from the
release, by another channel: `install.sh` refuses another program. A machine runs this program
alone: the server sends it no code.

## The server

```sh
sudo sh /etc/fedsim/server/install.sh WHEEL SHA256
cd /etc/fedsim/server
sudo -u fedsim venv/bin/fedsim deploy register .    # every key of keys/; again after a change
sudo -u fedsim venv/bin/fedsim deploy check .       # problems, with the remedy for each
sudo -u fedsim venv/bin/fedsim deploy train . deployment.toml \\
    federation.clients=@CLIENTS@ --out runs/first
```

Run the last command once the clients are connected: see `venv/bin/fedsim deploy status .`. It
trains and keeps one model, within the first limits of the clients. Name your own data in
`deployment.toml`, or give another file (`docs/how-to/train.md`). With the same options,
`fedsim deploy run . deployment.toml` trains with an adversary. Both must write inside this folder.
`install.sh` starts the SuperLink and the proxy (units fedsim-superlink, fedsim-proxy), which start
again with the machine.

Port @PORT@ must be open to the clients. The SuperLink's own port @SUPERLINK_PORT@ listens on
127.0.0.1 only and must stay closed, since Flower's Control API does not authenticate. Every user of
the server can start runs in its name, so give no other person an account there.

## Each client

Set the path of the data and your consent in `/etc/fedsim/client-K/node.toml`. The account `fedsim`,
which `install.sh` makes, must be able to read the data. `install.sh` does not change `data/`.

```sh
sudo sh /etc/fedsim/client-0/install.sh WHEEL SHA256
sudo -u fedsim /etc/fedsim/client-0/venv/bin/fedsim deploy check /etc/fedsim/client-0
```

Keep the clock by NTP: a server refuses a node that is 5 s ahead of it. After a change of
`node.toml`: `systemctl restart fedsim-client-0`.

@AUDITOR@## Later

- Before the server's certificate ends (see `deploy status`): `fedsim deploy renew KIT` here, then
  copy `server.key` and `server.crt` to the server's folder.
- A new key of a node, another version of the program, and all problems: `docs/how-to/runbook.md` of
  fedsim.

## Without systemd

Without root or systemd: `python3 -m venv venv && venv/bin/pip install WHEEL flwr==@FLOWER@` in
the folder. Set `BIN` in `settings.env` to its `venv/bin`, then use `sh start.sh` and `sh stop.sh`.
In this way you can try all of it on one machine. Install WHEEL from its file: the package index
has another program with a similar name.

Tested: `start.sh` and `stop.sh` on a separate network, `install.sh` without `systemctl`, the units
by `systemd-analyze verify`. Not tested: the units under systemd, and any of it on separate
machines.
"""

AUDITOR = """\
### The auditor

One more node, which receives what every client receives and answers without data. It may join and
leave at any time, also during a run:

```sh
sudo sh /etc/fedsim/auditor/install.sh WHEEL SHA256
sudo -u fedsim /etc/fedsim/auditor/venv/bin/fedsim deploy check /etc/fedsim/auditor
```

To watch a training, use the same machine. SEEDS has a line for each client that plants canaries,
with its canary-seed and canary-count. An experiment's challenge needs a copy of its data:
--data-root DATA.

```sh
cd /etc/fedsim/auditor
fedsim audit transcripts --follow
fedsim audit transcripts --follow --canary-seed-file SEEDS
```

It continues from run to run until you stop it; with `--once` it ends with one run.
`fedsim audit transcripts` audits a finished run. The report is
beside the transcript.

"""
