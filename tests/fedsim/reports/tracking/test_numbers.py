"""What is tracked of a run: the numbers of its events and its report, once, and nothing secret."""

from fedsim.audits.run import report as results
from fedsim.configuration import to_run_config
from fedsim.federation.runs.run_directory import RunDirectory
from fedsim.reports.tracking.progress import replay
from fedsim.reports.tracking.trackers import Tracking, parameters


class Kept:
    """A tracker in memory."""

    def __init__(self):
        self.identity = ""
        self.series: dict[str, list[tuple[int, float]]] = {}
        self.finished = False

    def begin(self, name, identity, parameters):
        self.identity = identity
        return not self.finished

    def log(self, values, step, time):
        assert time > 1e9
        for name, value in values.items():
            self.series.setdefault(name, []).append((step, value))

    def end(self, finished):
        self.finished = finished


def test_rounds_are_of_the_first_batch_and_trials_of_all_that_are_finished(small, run, tmp_path):
    run(small({"trials.batch": 4}))
    directory, kept = RunDirectory.open(tmp_path / "run-0"), Kept()
    replay(directory, Tracking(directory, kept, "kept"))
    assert [step for step, _ in kept.series["round/accuracy"]] == [0, 1, 2, 3]
    assert [step for step, _ in kept.series["trials/advantage"]] == [4, 8]
    report = results.read(directory)
    assert kept.series["report/advantage"] == [(8, report.attack.advantage)]
    assert kept.series["trials/advantage"][-1][1] == report.attack.advantage
    assert kept.series["report/rho_alpha"] == [(8, report.row.limit.rho_alpha)]
    assert kept.finished
    assert kept.identity == directory.identity
    before = {name: list(values) for name, values in kept.series.items()}
    replay(directory, Tracking(directory, kept, "kept"))  # logged once, however often
    assert kept.series == before


def test_of_a_training_only_what_is_public_is_tracked(small, tmp_path):
    directory = RunDirectory.create(tmp_path / "run", small({"run.job": "training"}))
    with directory.lock():
        pass  # gives it an identity
    limits = {"sums": 1.25, "message of client 2": None}
    directory.log_event(round=1, trials=[0, 1], accuracy=0.5, epsilon=1.0, noise_at_most=limits)
    directory.log_event(dropped=2, of="round 1", reason="it was slow")
    directory.log_event(busy=[0, 2], seconds=61.0)
    directory.log_event(phase="batch", trials=[0, 1])
    kept = Kept()
    replay(directory, Tracking(directory, kept, "kept"))
    assert kept.series == {"round/accuracy": [(1, 0.5)], "round/epsilon": [(1, 1.0)]}
    assert not kept.finished


def test_neither_paths_nor_a_seed_that_keeps_a_secret_are_handed_on(small):
    places = {"data.root": "/records/of/clinic", "run.out": "/home/somebody/run"}
    found = parameters(to_run_config(small(places)))
    assert "/" not in "".join(map(str, found.values()))
    assert found["run.seed"] == 0
    assert found["training.rounds"] == 3
    system = small({**places, "privacy.noise-source": "system"})
    assert "run.seed" not in parameters(to_run_config(system))


def test_a_model_that_diverged_has_no_point(small, tmp_path):
    directory = RunDirectory.create(tmp_path / "run", small())
    with directory.lock():
        pass
    directory.log_event(round=1, trials=[0, 8], loss=float("nan"), accuracy=0.5)
    kept = Kept()
    replay(directory, Tracking(directory, kept, "kept"))
    assert kept.series == {"round/accuracy": [(1, 0.5)]}
