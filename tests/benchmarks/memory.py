"""The peak memory of one step of each contestant, each in a process of its own."""

import ctypes
import json
import resource
import subprocess
import sys
import warnings
from contextlib import suppress
from pathlib import Path

import psutil
import torch
from contestants import CONTESTANTS, FEDSIM, NETWORKS, PLAIN, game
from tables import Table

NETWORKS_AND_TRIALS = {
    "mnist-cnn": (8, 64),
    "purchase-100": (8, 64),
    "adult": (8, 64),
    "resnet18": (8,),
}
NOTE = (
    "Peak resident memory during a step, less that before it. The T models and the records are "
    "there before it, the T sums are not. On a GPU, the memory that PyTorch has allocated."
)


def measure(smoke, where):
    """Yield the memory of every contestant."""
    rows = []
    # Every figure is a process of its own, which takes seconds to start.
    contestants = (FEDSIM, PLAIN) if smoke else tuple(CONTESTANTS)
    for name, trials in [("adult", 2)] if smoke else _sizes():
        records = 4 if smoke else NETWORKS[name].records
        found = [_of(name, who, trials, records, where) for who in contestants]
        rows.append((name, records, trials, *found))
    columns = ("network", "records", "T", *contestants)
    yield Table("Peak memory of one step, MiB", columns, rows, NOTE)


def _sizes():
    for name, sizes in NETWORKS_AND_TRIALS.items():
        for trials in sizes:
            yield name, trials


def _of(name, who, trials, records, where):
    command = [sys.executable, __file__, name, who, str(trials), str(records), where.type]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        return done.stderr.strip().splitlines()[-1][:60]
    return float(json.loads(done.stdout))


def _one_step(name, who, trials, records, where):
    """Return how much the peak during a step lies above what is held before it, in MiB."""
    network = NETWORKS[name]
    # What a first step loads and compiles is not its memory.
    CONTESTANTS[who](game(network, 1, 2, where))()
    step = CONTESTANTS[who](game(network, trials, records, where))
    if where.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        step()
        return (torch.cuda.max_memory_allocated() - before) / 2**20
    return added(step)


def added(step):
    """Return how much the peak of resident memory during a step lies above that before it, MiB."""
    # Freed memory that glibc keeps would hide what the step takes.
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
    # Linux forgets the peak on request; elsewhere it is that of the whole process.
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
    before = psutil.Process().memory_info().rss
    step()
    return (_peak() - before) / 2**20


def _peak():
    """Return the peak resident memory in bytes."""
    status = Path("/proc/self/status")
    if not status.exists():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    # Unlike ru_maxrss, this does not begin with what the parent process held.
    lines = dict(line.split(":", 1) for line in status.read_text().splitlines())
    return int(lines["VmHWM"].split()[0]) * 1024


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    network_name, contestant, trial_count, record_count, device_name = sys.argv[1:]
    sizes = (int(trial_count), int(record_count))
    print(_one_step(network_name, contestant, *sizes, torch.device(device_name)))
