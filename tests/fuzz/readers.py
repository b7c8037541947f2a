"""Every reader of a file that somebody else may have made or changed, with a file for it."""

import gzip
import json
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import damage
import numpy as np
from flwr.app import Context
from PIL import Image

from fedsim import client_app, configuration, server_app
from fedsim.audits.judgement import canary_scores
from fedsim.audits.run import report as results
from fedsim.common import report_directory
from fedsim.configuration import Config, to_run_config
from fedsim.configuration.federation import DataConfig
from fedsim.deployment import run
from fedsim.federation.client import adversary_node
from fedsim.federation.runs import batches, ledger, run_transcript
from fedsim.federation.runs.run_directory import RunDirectory
from fedsim.federation.runtimes.inprocess import InProcessGrid
from fedsim.federation.server import nodes
from fedsim.federation.server.plan import preflight
from fedsim.federation.transcripts import reader, records
from fedsim.federation.transcripts.writer import Writer
from fedsim.learning import data
from fedsim.learning.data import public
from fedsim.privacy import releases_file
from fedsim.reports.kinds import verification


@dataclass(frozen=True)
class Reader:
    """A file, and what reads it.

    path: of the file that is damaged; read: returns what was read; ways: to damage it; sealed:
    whether the file has a checksum, so that an accident never goes by unnoticed; grows: but for
    what was cut off at its end, where the next entry would come.
    """

    path: Path
    read: Callable[[], object]
    ways: tuple[Callable, ...] = damage.TEXT
    sealed: bool = False
    grows: bool = False


READERS = {}


def _reader(name):
    def add(make):
        READERS[name] = make
        return make

    return add


def experiment():
    """Return the experiment whose run is damaged."""
    changes = {"data.records": 24, "data.held-out": 24, "federation.clients": 3, "model.hidden": 4}
    changes |= {"training.rounds": 2, "trials.count": 8, "trials.batch": 4}
    return configuration.from_run_config(to_run_config(Config()) | changes)


def played(path):
    """Return a finished run."""
    settings = experiment()
    directory = RunDirectory.create(path, settings)
    grid = InProcessGrid(client_app.app, settings.federation.clients, to_run_config(settings))
    server_app.carry_out(grid, preflight(settings), directory)
    return directory


def _of_run(name, read, **options):
    def make(folder):
        directory = RunDirectory(folder / "run")
        return Reader(directory.path / name, lambda: read(directory), **options)

    READERS[name] = make


NPZ = {"ways": damage.RAW, "sealed": True}
_of_run("config.toml", lambda run: run.config)
_of_run("ledger.jsonl", ledger.read, sealed=True, grows=True)
_of_run("events.jsonl", lambda run: (list(run.events()), ledger.rounds_seen(run)))
_of_run("facts.json", lambda run: run.read_facts())
_of_run("report.json", lambda run: (results.read(run), run.finished))
_of_run("identity", lambda run: run.identity)
_of_run("nodes.json", nodes.registered_nodes)


def _batches(run):
    file = run.batch_file(0)
    return (
        batches.Batches(run.config, run).ranges(),
        batches.rounds_of(run, 0),
        run.read_arrays(file),
    )


_of_run("batches/000000.npz", _batches, **NPZ)
_of_run("transcript.npz", run_transcript.read, **NPZ)


def _repacked(name):
    make = READERS[name]

    def remake(folder):
        reader = make(folder)
        return Reader(reader.path, reader.read, (damage.repacked,))

    READERS[f"{name}, repacked"] = remake


@_reader("sums")
def _sums(folder):
    path = folder / "SHA256SUMS"
    path.write_text(f"{'0' * 64}  report.json\n{'1' * 64}  figures/belief.svg\n")
    return Reader(path, lambda: verification.read_sums(path))


def _recording(name):
    def make(folder):
        path = folder / "recording.fedt"
        if not path.exists():
            arrays = {"w": np.arange(6.0).reshape(2, 3)}
            with Writer(path, records.TranscriptFacts("server", "a test")) as writer:
                for round in (1, 2, 3):
                    replies = {7: records.NodeReply(arrays, 3.0, {"loss": 0.5})}
                    writer.append(records.ObservedRound(round, arrays, replies))
                writer.end()

        def read():
            found = reader.read_transcript(path)
            return [found.facts, found.ended, *found.rounds]

        return Reader(path / name, read, damage.RAW, sealed=name.endswith(".npz"))

    READERS[f"a recording's {name}"] = make


for each in ("facts.json", "000002.npz", "end.json"):
    _recording(each)
_repacked("a recording's 000002.npz")


@_reader("a description of rounds")
def _description(folder):
    path = folder / "rounds.toml"
    path.write_text("[[rounds]]\nnoise-multiplier = 1.5\ncount = 10\nsampling-rate = 0.5\n")
    return Reader(path, lambda: releases_file.load(path))


def _loaded(name, root, **options):
    def read():
        found = data.DATASETS[name](DataConfig(name=name, root=str(root), **options))
        return found.train.features, found.train.labels, found.classes, found.attributes

    return read


@_reader("arrays of one's own")
def _npz(folder):
    path = folder / "own.npz"
    np.savez_compressed(path, features=np.eye(8), labels=np.arange(8) % 2, key=np.arange(8))
    return Reader(path, _loaded("npz", path), **cast(Any, NPZ))


@_reader("a table")
def _csv(folder):
    path = folder / "own.csv"
    path.write_text("age,town,label\n" + "".join(f"{n},t{n % 3},{n % 2}\n" for n in range(12)))
    return Reader(path, _loaded("csv", path))


def _idx(folder, pack, ending):
    images = struct.pack(">4B3I", 0, 0, 8, 3, 6, 4, 4) + bytes(range(96))
    labels = struct.pack(">4BI", 0, 0, 8, 1, 6) + bytes([0, 1, 2, 0, 1, 2])
    folder.mkdir()
    (folder / f"train-labels-idx1-ubyte{ending}").write_bytes(pack(labels))
    path = folder / f"train-images-idx3-ubyte{ending}"
    path.write_bytes(pack(images))
    return path


@_reader("IDX")
def _plain_idx(folder):
    path = _idx(folder / "idx", bytes, "")
    return Reader(path, _loaded("idx", path.parent), damage.RAW)


@_reader("IDX, packed")
def _packed_idx(folder):
    path = _idx(folder / "idx-gz", lambda content: gzip.compress(content, mtime=0), ".gz")
    return Reader(path, _loaded("idx", path.parent), damage.RAW, sealed=True)


@_reader("pictures")
def _pictures(folder):
    root = folder / "pictures"
    for name in ("a", "b"):
        (root / name).mkdir(parents=True)
        noise = np.random.default_rng(0).integers(0, 255, (8, 8, 3), dtype=np.uint8)
        Image.fromarray(noise).save(root / name / "one.png")
    return Reader(root / "a" / "one.png", _loaded("images", root), damage.RAW)


@_reader("purchases")
def _purchases(folder):
    path = folder / "purchases" / "dataset_purchase"
    path.parent.mkdir()
    path.write_text("".join(f"{n + 1}," + ",".join("01" * 300) + "\n" for n in range(4)))

    return Reader(path, lambda: public.read_purchases(path, path.read_bytes()))


@_reader("scores of canaries")
def _scores(folder):
    path = folder / "scores.csv"
    path.write_text("canary,included,score\n0,1,0.5\n1,0,-0.5\n2,1,1e3\n")
    return Reader(path, lambda: canary_scores.read_scores(path))


@_reader("what a node remembers")
def _memory(folder):
    place = SimpleNamespace(run_id=1, node_id=2, node_config={"state-path": str(folder / "state")})
    context = cast(Context, place)
    adversary_node.remember(context, "ratios", {"a": np.eye(3)})
    (path,) = (folder / "state").iterdir()
    return Reader(path, lambda: adversary_node.recall(context, "ratios") or None, damage.RAW)


@_reader("a report that may be replaced")
def _replaced(folder):
    place = folder / "replaced"
    place.mkdir()
    (place / "report.json").write_text('{"kind": "choice", "runs": [1, 2.5, null]}')
    return Reader(
        place / "report.json", lambda: report_directory.check_new(place, replacing="choice")
    )


@_reader("the nodes of a kit")
def _registered(folder):
    place = folder / "server"
    place.mkdir()
    nodes_of = {"client-0": {"node": "12", "key": "SHA256:x", "replaced": []}}
    (place / "nodes.json").write_text(json.dumps(nodes_of))
    return Reader(place / "nodes.json", lambda: run.registered(place))


for _name in ("batches/000000.npz", "transcript.npz", "arrays of one's own"):
    _repacked(_name)
