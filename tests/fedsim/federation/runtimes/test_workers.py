"""Work in other processes: the bits of one process, in any order, whatever is lost."""

import os
import signal
import time
from concurrent.futures import Executor, Future
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from multiprocessing import active_children
from threading import Thread

import pytest

from adversaries.errors import InputError
from fedsim import worker
from fedsim.commands.deploy import certificates
from fedsim.experiment import run_in_process
from fedsim.federation.runs import ledger
from fedsim.federation.runs.run_directory import RunDirectory
from fedsim.federation.runtimes import workers
from fedsim.federation.runtimes.workers import (
    AUTHORITY,
    CERTIFICATE,
    KEY,
    Address,
    Pool,
    opened,
    train_elsewhere,
)
from fedsim.federation.server.plan import preflight
from fedsim.reports import page

FEW = {"training.rounds": 2, "trials.batch": 4, "trials.count": 16, "run.device": "cpu"}
LAST = 12
"""First trial of the last batch."""

CLOCKS = {"batch_seconds", "experiment"}
"""What of a transcript is of one run alone."""


@pytest.fixture(autouse=True)
def _without_pages(monkeypatch):
    monkeypatch.setattr(page, "write_figures", lambda *_: [])
    monkeypatch.setattr(page, "render_html", lambda *_: "")


class Backwards(Executor):
    """Workers that finish last what they were given first, or are lost.

    lost: the number of the task that is lost, counted from 1; 0: none.
    """

    def __init__(self, lost=0, change=lambda program: program):
        self.lost, self.change, self.finished, self.waiting = lost, change, 0, []

    def submit(self, train, program, batch):
        future = Future()
        self.waiting.append((future, partial(train, self.change(program), batch)))
        if len(self.waiting) == 3 or batch.trials.start == LAST:
            while self.waiting:
                self._finish(*self.waiting.pop())
        return future

    def _finish(self, future, train):
        self.finished += 1
        try:
            if self.finished == self.lost:
                raise BrokenProcessPool
            future.set_result(train())
        except Exception as error:
            future.set_exception(error)


def _pool(**how):
    def configured(run):
        return run.model_copy(update={"threads": 1})

    return Pool(Backwards(**how), (BrokenProcessPool,), lambda: 3, configured)


def _carried_out(config, path, pool=None):
    directory = RunDirectory.create(path, config)
    elsewhere = None if pool is None else partial(train_elsewhere, pool, worker.train_batch)
    run_in_process(preflight(config), directory, elsewhere)
    return directory


def _same_bits(one, other):
    first, second = (each.read_arrays("transcript.npz") for each in (one, other))
    assert first.keys() == second.keys()
    return all(first[name].tobytes() == second[name].tobytes() for name in first.keys() - CLOCKS)


def _rounds(directory):
    """Return the events of rounds in the order of the trials, without the time."""
    events = [event | {"time": 0} for event, _ in directory.events() if "round" in event]
    return sorted(events, key=lambda event: (event["trials"], event["round"]))


def test_batches_that_end_in_another_order_leave_what_one_process_leaves(small, tmp_path):
    config = small(FEW)
    here = _carried_out(config, tmp_path / "here")
    there = _carried_out(config, tmp_path / "there", _pool())
    assert _same_bits(here, there)
    assert ledger.verified(here) == ledger.verified(there)
    assert _rounds(here) == _rounds(there)


def test_a_lost_worker_ends_the_run_which_the_next_command_continues(small, tmp_path):
    config = small(FEW)
    here = _carried_out(config, tmp_path / "here")
    with pytest.raises(RuntimeError, match=r"a worker or the scheduler was lost.*fedsim run"):
        _carried_out(config, tmp_path / "there", _pool(lost=2))
    assert len(list((tmp_path / "there" / "batches").iterdir())) == 2  # what had finished
    there = _carried_out(config, tmp_path / "there", _pool())
    assert _same_bits(here, there)  # the epsilons of all rounds among them
    assert {row.batch for row in ledger.verified(there) if row.attempt == 2} == {4}


@pytest.mark.parametrize("what", ["fedsim", "torch", "device", "data"])
def test_a_worker_with_another_program_is_refused_by_its_name(small, tmp_path, what):
    def change(program):
        return program | {what: "another"}

    with pytest.raises(InputError, match=f"worker .*:{os.getpid()} has {what} .* another; "):
        _carried_out(small(FEW), tmp_path / "run", _pool(change=change))


def test_noise_that_cannot_be_drawn_again_is_refused():
    workers.check_chargeable("seed", 0)
    for kind in (("system", 0), ("seed", 1)):
        with pytest.raises(InputError, match="leave out --workers and --cluster"):
            workers.check_chargeable(*kind)


def test_workers_share_the_cores_and_the_memory(small):
    with opened(2, print) as pool:
        own = pool.configured(small({"run.max-memory": "4GB", "run.device": "cpu"}).run)
        three = pool.configured(small({"run.threads": 3, "run.device": "cpu"}).run)
    assert (own.max_memory, three.threads) == ("2000000000B", 3)


def _when(folder, pattern, act):
    """Return a thread that acts once a file is there."""

    def wait():
        while not any(folder.glob(pattern)):
            time.sleep(0.01)
        act()

    return Thread(target=wait)


def _kill_child(before):
    """Return a function that kills a process that was not there before."""
    return lambda: os.kill(
        min(child.pid or 0 for child in set(active_children()) - before), signal.SIGKILL
    )


@pytest.mark.slow
def test_processes_give_the_bits_of_one_also_where_one_of_them_is_killed(
    small, tmp_path, monkeypatch
):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,7")
    config, before = small(FEW | {"trials.count": 40}), set(active_children())
    here = _carried_out(config, tmp_path / "here")
    killer = _when(tmp_path / "there", "batches/*.npz", _kill_child(before))
    with opened(2, print) as pool:
        seen = pool.executor.submit(os.getenv, "CUDA_VISIBLE_DEVICES").result()
        killer.start()
        with pytest.raises(RuntimeError, match=r"was lost.*fedsim run"):
            _carried_out(config, tmp_path / "there", pool)
    killer.join()
    assert seen == "4"
    assert set(active_children()) == before
    with opened(2, print) as pool:
        assert _same_bits(here, _carried_out(config, tmp_path / "there", pool))


@pytest.mark.parametrize("text", ["localhost:8786", "tcp://127.0.0.1:8786", "tcp://[::1]:8786"])
def test_this_machine_needs_no_certificates(text):
    assert Address.of(text, None, insecure=False).url.startswith("tcp://")


def test_another_machine_is_reached_by_tls_alone_unless_the_user_insists(tmp_path):
    with pytest.raises(InputError, match=r"10\.0\.0\.5 is another machine"):
        Address.of("10.0.0.5:8786", None, insecure=False)
    assert Address.of("10.0.0.5:8786", None, insecure=True).url == "tcp://10.0.0.5:8786"
    with pytest.raises(InputError, match="give the address that dask scheduler prints"):
        Address.of("tls://10.0.0.5:8786", None, insecure=True)
    with pytest.raises(InputError, match=r"has no ca\.pem"):
        Address.of("10.0.0.5:8786", tmp_path, insecure=False)
    certificates(tmp_path / "tls", days=30)
    with pytest.raises(InputError, match="give the address that dask scheduler prints"):
        Address.of("tcp://10.0.0.5:8786", tmp_path / "tls", insecure=False)
    found = Address.of("10.0.0.5:8786", tmp_path / "tls", insecure=False)
    assert found.url == "tls://10.0.0.5:8786"


@pytest.mark.parametrize("text", ["somewhere", "tcp://:8786", "http://10.0.0.5:8786", "a:port"])
def test_what_is_no_address_is_refused(text):
    with pytest.raises(InputError, match="give the address that dask scheduler prints"):
        Address.of(text, None, insecure=True)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """A scheduler and two workers on this machine, which authenticate each other."""
    distributed = pytest.importorskip("distributed")
    folder = tmp_path_factory.mktemp("cluster") / "tls"
    certificates(folder, days=30)
    tls = {f"tls_{role}_cert": str(folder / CERTIFICATE) for role in ("scheduler", "worker")}
    tls |= {f"tls_{role}_key": str(folder / KEY) for role in ("scheduler", "worker")}
    tls |= {"tls_client_cert": str(folder / CERTIFICATE), "tls_client_key": str(folder / KEY)}
    security = distributed.Security(
        require_encryption=True, tls_ca_file=str(folder / AUTHORITY), **tls
    )
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, dashboard_address=":0", security=security
    ) as local:
        yield local, Address.of(local.scheduler_address, folder, insecure=False)


QUIET = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning")


@QUIET
@pytest.mark.slow
def test_a_cluster_gives_the_bits_of_one_process_also_where_a_worker_is_killed(
    small, tmp_path, cluster
):
    config, (local, address) = small(FEW | {"trials.count": 32}), cluster
    here = _carried_out(config, tmp_path / "here")
    killer = _when(
        tmp_path / "there",
        "batches/*.npz",
        lambda: os.kill(local.workers[0].process.pid, signal.SIGKILL),
    )
    killer.start()
    with opened(address, print) as pool:
        there = _carried_out(config, tmp_path / "there", pool)
    killer.join()
    assert _same_bits(here, there)


@QUIET
@pytest.mark.slow
def test_a_lost_scheduler_ends_the_run_with_the_command_that_continues_it(small, tmp_path, cluster):
    config = small(FEW | {"trials.batch": 2, "trials.count": 200})
    closing = _when(tmp_path / "run", "batches/*.npz", cluster[0].close)
    closing.start()
    with opened(cluster[1], print) as pool:
        with pytest.raises(RuntimeError, match=r"was lost.*fedsim run") as ended:
            _carried_out(config, tmp_path / "run", pool)
        closing.join()
        begun = time.perf_counter()
    assert "\n" not in str(ended.value)
    assert time.perf_counter() - begun < 20
