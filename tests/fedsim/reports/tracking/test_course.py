"""What is known of a run after its events: what a bar and a tracker show."""

from functools import reduce

from fedsim.reports.tracking.course import Course, Look, after

BEGUN = [
    {"time": 1.0, "phase": "preparing"},
    {"time": 2.0, "phase": "training", "rounds": 2},
    {"time": 3.0, "round": 1, "trials": [0, 4], "accuracy": 0.25, "majority": 0.2},
    {"time": 4.0, "round": 2, "trials": [0, 4], "accuracy": 0.75, "majority": 0.2},
]
FINISHED = {
    **{"time": 5.0, "phase": "batch", "trials": [0, 4], "accuracy": 0.75, "belief": 0.8},
    **{"advantage": 0.5, "advantage_interval": [-0.25, 1.0]},
}


def _after(*events):
    return reduce(after, events, Course())


def test_rounds_and_finished_trials_are_known():
    found = _after(*BEGUN, FINISHED, {"time": 6.0, "round": 1, "trials": [4, 8], "accuracy": 0.2})
    assert (found.trials, found.round, found.accuracy) == ((4, 8), 1, ("accuracy", 0.2))
    assert found.look == Look(4, 0.5, (-0.25, 1.0), 0.8, 0.75)
    even = {"time": 6.0, "round": 2, "trials": [0, 1], "accuracy": 0.9, "balanced_accuracy": 0.6}
    assert _after(*BEGUN, even).accuracy == ("balanced accuracy", 0.6)


def test_events_of_clients_and_auditors_change_nothing():
    others = [
        {"time": 5.0, "dropped": 1, "of": "round 1", "reason": "it was slow"},
        {"time": 5.0, "waiting": ["client-1"]},
        {"time": 5.0, "auditor": 7, "joined": True},
    ]
    assert _after(*BEGUN, *others) == after(_after(*BEGUN), {"time": 5.0})


def test_it_is_known_who_keeps_the_server_waiting_until_the_wait_is_over():
    late = {"time": 70.0, "busy": [0, 2], "seconds": 61.0}
    assert _after(*BEGUN, late).busy_text == "clients 0, 2, for 61 s"
    assert _after(*BEGUN, late, {"time": 99.0, "auditor": 7, "joined": True}).busy_text.endswith(
        "for 90 s"
    )
    assert _after(*BEGUN, late, {"time": 99.0, "busy": [], "seconds": 90.0}).busy_text == ""
    assert _after(*BEGUN, late, {"time": 99.0, "phase": "preparing"}).busy_text == ""
