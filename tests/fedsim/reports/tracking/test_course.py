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


def test_accuracy_does_not_fall_back_when_other_trials_begin():
    next_batch = {"time": 6.0, "round": 1, "trials": [4, 8], "accuracy": 0.2}
    assert _after(*BEGUN).steady_accuracy == 0.75
    found = _after(*BEGUN, FINISHED, next_batch)
    assert (found.trials, found.round, found.model["accuracy"]) == ((4, 8), 1, 0.2)
    assert found.steady_accuracy == 0.75
    assert found.look == Look(4, 0.5, (-0.25, 1.0), 0.8, 0.75)


def test_uneven_classes_are_judged_by_their_criterion_or_not_at_all():
    uneven = {"accuracy": 0.9, "majority": 0.9, "of_class": [90, 10]}
    trained = {"time": 6.0, "round": 2, "trials": [0, 1], **uneven}
    assert _after(*BEGUN, trained).worth == ""
    measured = {**trained, "balanced_accuracy": 0.6, "area_under_curve": 0.731}
    assert _after(*BEGUN, measured).worth == "AUC 0.731 (a constant answer has 0.500)"
    # A batch of trials measures it after its last round, which holds until the next.
    assert _after(*BEGUN, measured, {**trained, "round": 1}).worth.startswith("AUC 0.731")


def test_a_resumed_run_counts_its_finished_batches_once():
    resumed = [{"time": 7.0, "phase": "training", "rounds": 2}, {**FINISHED, "time": 8.0}]
    found = _after(*BEGUN, FINISHED, *resumed)
    assert len(found.looks) == 1


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
