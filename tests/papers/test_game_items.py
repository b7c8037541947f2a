"""Items that play the core paper's game, in their smoke size, against what theory says of it."""

import math
import runpy
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from adversaries.errors import InputError
from adversaries.statistics import gaussian
from fedsim.privacy import calibration
from papers import making
from papers.abadi import accuracies
from papers.bernau import audit_figures, identification, norms, sensitivities
from papers.findings import Means, Scale, agreement
from papers.registry import ITEMS
from papers.xiao import clusters, network

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def smoke(tmp_path_factory):
    """One folder for all items, which share their runs."""
    return Means(Scale.SMOKE, tmp_path_factory.mktemp("reproduction"), say=lambda what: None)


def test_noise_scaled_to_local_sensitivity_has_the_advantage_of_the_whole_budget(smoke):
    numbers = {one.name: one for one in identification.table(smoke, "mnist").numbers}
    wanted = calibration.epsilon_at_most(math.log(9), 0.01, "rdp-classic")
    allowed = gaussian.advantage(math.sqrt(2) / calibration.noise_multiplier(wanted, 2))
    for name in ("LS bounded: advantage", "LS unbounded: advantage"):
        assert numbers[name].closed_form == pytest.approx(allowed, rel=1e-6)
    # What noise scaled to the global sensitivity wastes, the adversary lacks.
    wasted = numbers["GS bounded: advantage"].closed_form
    assert wasted is not None
    assert 0 < wasted < allowed
    for number in numbers.values():
        assert number.interval is not None
        assert number.interval[0] <= number.ours <= number.interval[1]


def test_beliefs_in_d_are_above_one_half_on_average_where_d_was_used(smoke):
    found = identification.beliefs(smoke, "mnist")
    assert all(0.3 < one.ours < 0.9 for one in found.numbers)
    assert found.pictures[0].svg.startswith("<?xml")


def test_epsilon_from_sensitivities_is_the_target_under_local_and_less_under_global_noise(smoke):
    numbers = {one.name: one for one in audit_figures.audit(smoke, "mnist").numbers}
    for belief in (0.75, 0.9):
        local = numbers[f"ρβ = {belief:g}, local sensitivity: ε′ from sensitivities"]
        assert agreement(local).kind == "agrees"
        total = numbers[f"ρβ = {belief:g}, global sensitivity: ε′ from sensitivities"]
        assert total.ours < 0.95 * local.ours
        inferred = numbers[f"ρβ = {belief:g}, local sensitivity: advantage of membership inference"]
        assert abs(inferred.ours) < 0.5


def test_dissimilar_pairs_move_a_step_more_than_similar_ones(smoke):
    numbers = {one.name: one for one in sensitivities.followed(smoke, "mnist").numbers}
    highest, lowest = numbers["RMS LS, bounded, max 1"], numbers["RMS LS, bounded, min 1"]
    assert lowest.ours < highest.ours <= 6 * (1 + 1e-6)
    assert highest.interval is not None
    assert highest.interval[0] <= highest.ours <= highest.interval[1]


def test_what_was_made_is_kept_and_what_is_damaged_is_made_again(smoke):
    chosen = [item for item in ITEMS if item.name == "table-2b"]
    (first,) = making.make(chosen, smoke)
    counted = replace(chosen[0], make=_never)
    (again,) = making.make([counted], smoke)
    assert again == first
    kept = smoke.folder / "items" / "smoke-bernau-table-2b.json"
    kept.write_bytes(kept.read_bytes()[:-40])
    (mended,) = making.make(chosen, smoke)
    assert mended.finding == first.finding


def _never(means):
    raise AssertionError("what was kept is made again")


def test_an_item_has_its_pictures_beside_it(smoke):
    (made,) = making.make(making.chosen(["bernau/figure-1"]), smoke)
    (picture,) = made.finding.pictures
    drawn = smoke.folder / "items" / f"smoke-bernau-figure-1-{picture.name}.svg"
    assert drawn.read_text(encoding="utf-8") == picture.svg


def test_what_has_no_data_is_skipped_and_the_reason_says_how_to_get_it(tmp_path):
    full = Means(Scale.FULL, tmp_path)
    items = making.chosen(["bernau/figure-3", "bernau/table-2a-adult"])
    ((title, why),) = making.skipped(items, full, []).items()
    assert title == "Table 2a: advantage and δ′ at ρβ = 0.9, Adult"
    assert why.startswith("put UCI's adult.data")


def test_what_takes_days_is_made_only_when_it_is_named(tmp_path):
    item = replace(next(one for one in ITEMS if not one.needs), minutes=1700.0, make=_never)
    full = Means(Scale.FULL, tmp_path)
    said = making.skipped([item], full, [item.source])
    assert said == {item.title: "takes about 28 hours: name it to make it"}
    assert making.skipped([item], full, [f"{item.source}/{item.name}"]) == {}


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("nobody", "unknown source 'nobody'; give one of bernau"),
        ("bernau/figure-99", "bernau has no item 'figure-99'; its items: figure-1"),
    ],
)
def test_what_is_not_there_is_refused_by_name(name, said):
    with pytest.raises(InputError, match=said):
        making.chosen([name])


def test_nothing_of_a_smoke_size_is_recorded(monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(sys, "argv", ["papers", "abadi/composition", "--smoke", "--record"])
    with pytest.raises(SystemExit, match="2"):
        runpy.run_path(str(ROOT / "papers"), run_name="__main__")


def test_names_of_items_are_their_own():
    assert len({(item.source, item.name) for item in ITEMS}) == len(ITEMS)


def test_accuracy_is_the_mean_of_its_trainings(smoke):
    found = identification.trained(smoke)
    assert len(found.numbers) == 4
    for number in found.numbers:
        assert number.interval is not None
        assert 0 <= number.ours <= 1
        assert number.interval[0] <= number.ours <= number.interval[1]


def test_norms_without_clipping_are_above_those_with_it(smoke):
    numbers = {one.name: one for one in norms.surveyed(smoke, "mnist").numbers}
    share = numbers["share of norms above C = 3, first models"].ours
    median = numbers["median norm, first models"].ours
    assert (median > 3) == (share > 0.5)


def test_k_means_needs_more_noise_for_more_clusters(smoke):
    few, many = clusters.clustered(smoke).numbers
    assert few.ours < many.ours
    for number in (few, many):
        assert number.interval is not None
        assert number.interval[0] <= number.ours <= number.interval[1]


def test_a_private_network_is_between_chance_and_the_one_without_noise(smoke):
    numbers = {one.name: one.ours for one in network.released(smoke).numbers}
    estimated = numbers["noise √E|B|², as if the spread were known"]
    assert estimated < numbers["noise √E|B|², with 95 % confidence"] < 2 * estimated
    without = numbers["accuracy without noise"]
    assert 0.5 < numbers["accuracy with noise of 95 % confidence"] < without + 0.02
    # At even odds, and as much information as all records share: hardly more than chance.
    assert 0.5 < list(numbers.values())[-1] < 0.52


def test_accuracy_falls_with_epsilon(smoke):
    numbers = {one.name: one.ours for one in accuracies.private(smoke).numbers}
    plain = numbers["ε = ∞, all pixels: accuracy"]
    assert plain > numbers["ε = 0.5, all pixels: accuracy"]
    assert plain > 0.85
    assert 0.5 > numbers["ε = 0.5, all pixels: ε by the privacy loss distribution"] > 0.1
