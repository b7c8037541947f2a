"""Workers of a Dask cluster: who is reached and how, and the bits are those of one process."""

import os
import signal
import time
from threading import Thread

import numpy as np
import pytest

import fedsim
from adversaries.errors import InputError
from fedsim import worker
from fedsim.commands.deploy import certificates
from fedsim.experiment import run_in_process
from fedsim.federation.runs.run_directory import RunDirectory
from fedsim.federation.runtimes.dask_pool import AUTHORITY, CERTIFICATE, KEY, Address, DaskPool
from fedsim.federation.runtimes.dispatch import Dispatcher
from fedsim.federation.server.plan import preflight


@pytest.mark.parametrize("text", ["localhost:8786", "tcp://127.0.0.1:8786", "tcp://[::1]:8786"])
def test_this_machine_needs_no_certificates(text):
    assert Address.of(text, None, insecure=False).url.startswith("tcp://")


def test_another_machine_is_reached_by_tls_alone_unless_the_user_insists(tmp_path):
    with pytest.raises(InputError, match=r"10\.0\.0\.5 is another machine"):
        Address.of("10.0.0.5:8786", None, insecure=False)
    assert Address.of("10.0.0.5:8786", None, insecure=True).url == "tcp://10.0.0.5:8786"
    with pytest.raises(InputError, match="tls:// address needs the folder"):
        Address.of("tls://10.0.0.5:8786", None, insecure=True)
    with pytest.raises(InputError, match=r"has no ca\.pem"):
        Address.of("10.0.0.5:8786", tmp_path, insecure=False)
    certificates(tmp_path / "tls", days=30)
    with pytest.raises(InputError, match="tcp:// address takes none"):
        Address.of("tcp://10.0.0.5:8786", tmp_path / "tls", insecure=False)
    found = Address.of("10.0.0.5:8786", tmp_path / "tls", insecure=False)
    assert found.url == "tls://10.0.0.5:8786"


@pytest.mark.parametrize("text", ["somewhere", "tcp://:8786", "http://10.0.0.5:8786", "a:port"])
def test_what_is_no_address_is_refused(text):
    with pytest.raises(InputError, match="give the address that dask scheduler prints"):
        Address.of(text, None, insecure=True)


@pytest.fixture
def cluster(tmp_path):
    """A scheduler and two workers on this machine, which authenticate each other."""
    distributed = pytest.importorskip("distributed")
    folder = tmp_path / "tls"
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


def _when(folder, pattern, act):
    """Return a thread that acts once a file is there."""

    def wait():
        while not any(folder.glob(pattern)):
            time.sleep(0.01)
        act()

    return Thread(target=wait)


def _kill_when(cluster, pattern, folder):
    """Return a thread that kills a worker once a file is there."""
    return _when(folder, pattern, lambda: os.kill(cluster.workers[0].process.pid, signal.SIGKILL))


QUIET = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning")


@QUIET
@pytest.mark.slow
def test_a_cluster_gives_the_bits_of_one_process_also_where_a_worker_is_killed(
    small, tmp_path, cluster
):
    config = small({"training.rounds": 2, "trials.batch": 4, "trials.count": 32})
    plan = preflight(config)
    here = RunDirectory.create(tmp_path / "here", config)
    run_in_process(plan, here)
    there = RunDirectory.create(tmp_path / "there", config)
    pool = DaskPool(cluster[1])
    killer = _kill_when(cluster[0], "batches/*.npz", there.path)
    killer.start()
    run_in_process(plan, there, Dispatcher(pool, worker.train_batch))
    killer.join()
    pool.stop()
    one, other = (each.read_arrays("transcript.npz") for each in (here, there))
    for name in one.keys() - {"batch_seconds", "clients_seconds", "experiment"}:
        assert np.array_equal(one[name], other[name], equal_nan=one[name].dtype.kind == "f"), name


@QUIET
@pytest.mark.slow
def test_a_lost_scheduler_ends_the_run_with_the_command_that_continues_it(small, tmp_path, cluster):
    config = small({"training.rounds": 2, "trials.batch": 2, "trials.count": 200})
    directory = RunDirectory.create(tmp_path / "run", config)
    pool = DaskPool(cluster[1])

    closing = _when(directory.path, "batches/*.npz", cluster[0].close)
    closing.start()
    with pytest.raises(RuntimeError, match=r"was lost.*fedsim run") as ended:
        run_in_process(preflight(config), directory, Dispatcher(pool, worker.train_batch))
    closing.join()
    assert "\n" not in str(ended.value)
    begun = time.perf_counter()
    pool.stop()
    assert time.perf_counter() - begun < 20


@QUIET
@pytest.mark.slow
def test_a_clusters_settings_are_those_of_one_process_also_where_a_worker_is_killed(
    small, tmp_path, cluster
):
    config = small({"trials.count": 40, "trials.batch": 4, "run.device": "cpu"})
    over, here, there = {"privacy.rho-beta": [0.7, 0.8, 0.9]}, tmp_path / "here", tmp_path / "there"
    killer = _kill_when(cluster[0], "*/report.json", there)
    killer.start()
    made = fedsim.choose(config, over=over, out=there, cluster=cluster[1])
    killer.join()
    alone = fedsim.choose(config, over=over, out=here)
    for one, other in zip(made.details, alone.details, strict=True):
        assert (one.failure, one.accuracies) == ("", other.accuracies)
        first, second = (
            np.load(each / one.point.name / "transcript.npz") for each in (here, there)
        )
        assert np.array_equal(first["log_odds"], second["log_odds"])
    assert (here / "summary.csv").read_text() == (there / "summary.csv").read_text()
