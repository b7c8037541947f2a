"""`fedsim account`, with and without a limit, from the command line to the printed numbers."""

import json
import math

import pytest

from adversaries.bounds.sample_size import trials_needed
from adversaries.statistics import gaussian
from fedsim.configuration.files import dump
from fedsim.privacy.accounting import ACCOUNTANTS
from tests.console import refusal, run

LIMITED = "account --rho-beta 0.9 --delta 0.01 --rounds 30"
ACCOUNT = "account --noise-multiplier 8.38022703488798 --rounds 30 --delta 0.01"
KEYS = {
    *("noise_multiplier", "effective_noise_multiplier", "epsilon", "delta", "rho_beta"),
    *("rho_alpha", "rounds", "sampling_rate", "neighbouring", "trust", "vantage", "clients"),
    *("accountant", "accountants"),
}


def text(arguments):
    result = run(arguments)
    assert result.exit_code == 0, result.output
    return " ".join(result.stdout.split())


def document(arguments):
    def refuse(constant):
        raise AssertionError(f"{constant} is not strict JSON")

    result = run(f"{arguments} --json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout, parse_constant=refuse)


def test_a_limit_is_solved_by_every_accountant():
    answer = document(LIMITED)
    assert answer.keys() >= KEYS
    assert answer["solutions"].keys() == answer["accountants"].keys() == ACCOUNTANTS.keys()
    assert answer["accountant"] == "pld"
    assert answer["noise_multiplier"] == pytest.approx(5.699546592, rel=1e-6)
    assert answer["noise_multiplier"] == answer["solutions"]["pld"]["noise_multiplier"]
    assert answer["accountants"]["pld"]["epsilon"] == pytest.approx(math.log(9), rel=1e-6)
    assert answer["epsilon"] == pytest.approx(math.log(9), rel=1e-12)
    assert answer["rho_beta"] == pytest.approx(0.9, rel=1e-12)
    assert answer["rho_alpha"] == pytest.approx(0.369, abs=5e-4)
    assert (answer["rounds"], answer["delta"], answer["sampling_rate"]) == (30, 0.01, 1.0)
    assert (answer["trust"], answer["vantage"], answer["clients"]) == ("central", "participant", 2)


def test_a_limit_reproduces_the_papers_noise_with_the_papers_accountant():
    answer = document(f"{LIMITED} --accountant rdp-classic")
    assert answer["noise_multiplier"] == pytest.approx(8.38022703488798, rel=1e-6)
    assert answer["rho_alpha"] == pytest.approx(0.2561767421042713, rel=1e-6)


def test_an_epsilon_may_be_given_instead_of_a_belief():
    by_epsilon = f"account --epsilon {math.log(9)!r} --delta 0.01 --rounds 30"
    assert document(by_epsilon)["noise_multiplier"] == document(LIMITED)["noise_multiplier"]


def test_the_noise_of_other_clients_lowers_the_nominal_multiplier():
    answer = document(f"{LIMITED} --trust local --clients 5")
    assert answer["effective_noise_multiplier"] == pytest.approx(5.699546592, rel=1e-6)
    assert answer["noise_multiplier"] == pytest.approx(5.699546592 / 2, rel=1e-6)
    again = document(
        f"account --noise-multiplier {answer['noise_multiplier']!r} --rounds 30 --delta 0.01 "
        "--trust local --clients 5"
    )
    assert again["rho_beta"] == pytest.approx(0.9, rel=1e-6)


def test_colluders_tell_their_noise():
    """Of eight clients three collude: a participant faces the noise of the other four."""
    setting = "--trust local --clients 8 --colluding 3"
    answer = document(f"{LIMITED} {setting}")
    assert answer["colluding"] == 3
    assert answer["effective_noise_multiplier"] == pytest.approx(5.699546592, rel=1e-6)
    assert answer["noise_multiplier"] == pytest.approx(5.699546592 / 2, rel=1e-6)
    command = f"account --noise-multiplier {answer['noise_multiplier']!r} --rounds 30 --delta 0.01"
    again = document(f"{command} {setting}")
    assert again["rho_beta"] == pytest.approx(0.9, rel=1e-6)
    multipliers = {
        (row["trust"], row["vantage"]): row["noise_multiplier"] / answer["noise_multiplier"]
        for row in again["to_whom"]
    }
    assert multipliers["distributed", "server"] == pytest.approx(math.sqrt(5 / 8))
    assert multipliers["distributed", "participant"] == pytest.approx(math.sqrt(4 / 8))
    assert multipliers["local", "server"] == pytest.approx(1)
    assert "with local trust and 8 clients, 3 colluding" in text(f"{command} {setting}")
    assert "collude" not in text(f"{command} --clients 8")
    rounds = f"account --rho-beta 0.9 --delta 0.01 --noise-multiplier 4 {setting}"
    fewer = document(rounds.replace("--clients 8 --colluding 3", "--clients 5"))
    assert document(rounds)["rounds"] == fewer["rounds"]


def test_colluders_may_be_supposed_of_a_described_federation(tmp_path):
    path = tmp_path / "rounds.toml"
    path.write_text(
        'trust = "local"\nclients = 8\ncolluders = 1\n'
        "[[rounds]]\nnoise-multiplier = 2.0\ncount = 5\n"
    )
    asked = f"account {path} --delta 0.01"
    for options, others in (("", 6), (" --colluding 3", 4), (" --colluding 0", 7)):
        effective = document(asked + options)["effective_noise_multiplier"]
        assert effective == pytest.approx(2 * math.sqrt(others))


def test_local_steps_count_as_steps_under_the_clients_own_noise():
    arguments = "--delta 0.01 --trust local --clients 5"
    local = document(f"account --noise-multiplier 4 --rounds 10 --local-steps 3 {arguments}")
    plain = document("account --noise-multiplier 4 --rounds 30 --delta 0.01")
    assert (local["rounds"], local["local_steps"]) == (10, 3)
    assert local["effective_noise_multiplier"] == 4
    assert local["epsilon"] == plain["epsilon"]
    target = f"account --epsilon {local['epsilon']!r} --rounds 10 --local-steps 3 {arguments}"
    assert document(target)["noise_multiplier"] == pytest.approx(4, rel=1e-6)
    assert "10 rounds of 3 local steps: fedsim accounts for 30 noisy steps" in text(target)


@pytest.mark.parametrize("command", [LIMITED, ACCOUNT])
def test_local_steps_that_make_no_sense_are_refused(command):
    assert "choose trust local" in refusal(f"{command} --local-steps 3")
    assert "give at least 1" in refusal(f"{command} --local-steps 0 --trust local")


@pytest.mark.parametrize("command", [LIMITED, ACCOUNT])
def test_of_a_given_person_the_tail_is_stated_that_holds_for_everybody(command):
    answer = document(command)
    assert answer["tail_limit"] > answer["tail_probability"] > answer["delta"]
    said = f"except in up to {100 * answer['tail_limit']:.3g} % of trainings with it"
    assert said in " ".join(text(command).split())


def test_account_gives_every_accountants_epsilon():
    answer = document(ACCOUNT)
    assert answer.keys() >= KEYS
    assert answer["epsilon"] == pytest.approx(1.3134725502396565, rel=1e-6)
    assert answer["tail_probability"] > 0.01
    assert answer["theorem2_rho_alpha"] < answer["rho_alpha"]
    rows = answer["accountants"]
    assert rows["rdp-classic"]["epsilon"] == pytest.approx(math.log(9), rel=1e-6)
    assert rows["rdp-classic"]["rho_beta"] == pytest.approx(0.9, rel=1e-6)
    assert rows["pld"]["epsilon"] == pytest.approx(rows["gdp"]["epsilon"], rel=1e-12)


@pytest.mark.parametrize("command", [LIMITED, ACCOUNT])
def test_an_accountant_that_does_not_apply_is_listed_with_its_reason(command):
    found = document(f"{command} --sampling-rate 0.5 --neighbouring replace")
    rows = found.get("solutions") or found["accountants"]
    assert rows["pld"].keys() > {"note"}
    assert rows["gdp"].keys() == {"refusal", "covers"}
    assert "add-remove" in rows["rdp"]["refusal"]
    assert "add-remove" in text(f"{command} --sampling-rate 0.5 --neighbouring replace")


def test_towards_a_server_with_clean_sums_epsilon_is_null_and_the_note_says_why():
    answer = document(f"{ACCOUNT} --vantage server")
    assert answer["effective_noise_multiplier"] == 0
    assert answer["epsilon"] is None
    assert "infinite" in answer["note"]
    assert (answer["rho_beta"], answer["rho_alpha"]) == (1.0, 1.0)
    assert "No protection" in text(f"{ACCOUNT} --vantage server")


def test_a_fallback_for_a_minute_delta_is_stated():
    command = "account --noise-multiplier 2 --rounds 10 --delta 1e-15 --sampling-rate 0.01"
    assert "bounded by rdp" in document(command)["note"]
    assert "pld: delta is too small" in text(command)


# --- other questions -------------------------------------------------------------------------


def test_given_the_noise_a_limit_finds_the_rounds():
    asked = "--rho-beta 0.9 --delta 0.01 --noise-multiplier 5.7"
    answer = document(f"account {asked}")
    assert (answer["found"], answer["rounds"]) == ("rounds", 30)
    # The paper's accounting allows fewer.
    assert answer["solutions"]["rdp-classic"]["rounds"] < 30
    assert "Most rounds: 30" in text(f"account {asked}")


def test_a_bound_on_the_advantage_needs_no_delta():
    answer = document("account --rho-alpha 0.25 --rounds 30")
    assert answer["rho_alpha"] == pytest.approx(0.25, rel=1e-6)
    assert answer["accountants"]["pld"]["epsilon"] == answer["epsilon"]


def test_the_information_that_all_rounds_release_is_stated():
    command = "account --noise-multiplier 4 --rounds 30 --delta 1e-5"
    answer = document(command)
    nats = 15 * math.log(1 + 1 / 64)
    assert answer["pac"]["mutual_information"] == pytest.approx(nats, rel=1e-6)
    assert answer["pac"]["advantage_bound"] > answer["rho_alpha"]
    said = f"PAC privacy, not a DP guarantee: all rounds release at most {nats:.6g} nats"
    assert said in text(command)


def test_the_bounds_are_stated_for_every_trust_and_vantage():
    rows = document(f"{ACCOUNT} --clients 4")["to_whom"]
    assert len(rows) == 9
    assert {row["trust"] for row in rows} == {"central", "local", "distributed"}
    local = next(row for row in rows if (row["trust"], row["vantage"]) == ("local", "participant"))
    alone = document(f"{ACCOUNT} --clients 4 --trust local")
    for key in ("epsilon", "rho_beta", "rho_alpha", "tail_probability", "yeom_bound"):
        assert local[key] == alone[key]


def test_a_trust_that_local_steps_rule_out_is_listed_with_its_reason():
    command = "account --noise-multiplier 4 --rounds 10 --local-steps 3 --delta 0.01 --trust local"
    refused = [row for row in document(command)["to_whom"] if "refusal" in row]
    assert [row["trust"] for row in refused] == ["central", "distributed"]
    assert all("choose trust local" in row["refusal"] for row in refused)


def test_a_configuration_is_accounted_as_its_run_would_be(tmp_path):
    path = tmp_path / "experiment.toml"
    path.write_text(
        "[privacy]\nrho-beta = 0.0\nnoise-multiplier = 3.0\ndelta = 0.02\n"
        '[federation]\nclients = 5\ntrust = "local"\n[training]\nrounds = 7\n'
    )
    answer = document(f"account {path}")
    by_hand = "account --noise-multiplier 3 --rounds 7 --trust local --clients 5 --delta"
    assert answer["epsilon"] == document(f"{by_hand} 0.02")["epsilon"]
    assert (
        document(f"account {path} --delta 0.001")["epsilon"]
        == (document(f"{by_hand} 0.001")["epsilon"])
    )
    assert answer["unit"] == "record"
    assert "sure that a given person's record was used" in text(f"account {path}")


def test_what_protects_a_whole_client_is_said_of_the_client(tmp_path):
    path = tmp_path / "experiment.toml"
    path.write_text(
        '[privacy]\nunit = "client"\nrho-beta = 0.0\nnoise-multiplier = 3.0\n'
        "[training]\nlocal-epochs = 4\nrounds = 7\n"
    )
    answer = document(f"account {path}")
    assert answer["unit"] == "client"
    assert (
        answer["epsilon"]
        == (document("account --noise-multiplier 3 --rounds 7 --delta 0.0005")["epsilon"])
    )
    said = text(f"account {path}")
    assert "sure that a given client's whole data was used" in said
    assert "the largest change that one client's whole data can cause" in said


def test_rounds_that_differ_are_read_from_a_file(tmp_path):
    path = tmp_path / "rounds.toml"
    path.write_text(
        "[[rounds]]\ncount = 20\nnoise-multiplier = 4.0\n"
        "[[rounds]]\ncount = 10\nnoise-multiplier = 8.0\n"
    )
    answer = document(f"account {path} --delta 0.01")
    assert answer["noise_multiplier"] is None
    assert answer["rounds"] == 30
    expected = gaussian.epsilon(math.sqrt(20 / 16 + 10 / 64), 0.01)
    assert answer["epsilon"] == pytest.approx(expected, rel=1e-9)
    assert "that differs between rounds" in text(f"account {path} --delta 0.01")
    assert document(f"account {path}")["delta"] == 1e-5
    assert "already sets rounds" in refusal(f"account {path} --rounds 3 --delta 0.1")


def test_the_trials_of_a_halfwidth_come_from_the_largest_advantage(small, tmp_path):
    path = written(tmp_path, dump(small({"audit.confidence": 0.99})))
    found = document(f"account {path} --halfwidth 0.1")
    precision, advantage = found["precision"], found["rho_alpha"]
    assert precision["advantage"] == pytest.approx(advantage)
    assert precision["trials"] == trials_needed(precision["advantage"], 0.1, 0.99)
    assert precision["trials_at_zero"] == trials_needed(0.0, 0.1, 0.99) > precision["trials"]
    said = (
        f"± 0.1 at 99% needs {precision['trials']:,} trials if it is {advantage:.3f} (the largest"
    )
    assert said in text(f"account {path} --halfwidth 0.1")
    by_hand = document(f"{LIMITED} --halfwidth 0.1")
    assert by_hand["precision"]["advantage"] == pytest.approx(by_hand["rho_alpha"])
    assert by_hand["precision"]["confidence"] == 0.95
    assert "precision" not in document(ACCOUNT)


def test_the_risk_at_the_given_baseline_is_stated():
    command = "account --max-risk 0.5 --baseline-risk 0.3 --rounds 30"
    risks = {row["baseline"]: row["at_most"] for row in document(command)["risks"]}
    assert risks[0.3] == pytest.approx(0.5, rel=1e-6)
    assert "30.0% 50.0%" in text(command)
    assert "1 in 1,000" in text(command)


def test_a_limit_counts_the_clients_that_take_part():
    setting = "--rounds 30 --delta 0.01 --trust local --clients 8 --participants 4"
    nominal = document(f"account --rho-beta 0.9 {setting}")["noise_multiplier"]
    again = document(f"account --noise-multiplier {nominal!r} {setting}")
    assert again["rho_beta"] == pytest.approx(0.9, rel=1e-6)
    assert nominal == pytest.approx(5.699546592 / math.sqrt(3), rel=1e-6)


# --- what is no guarantee, and what cannot be said -------------------------------------------


UNCLIPPED = (
    "[privacy]\nrho-beta = 0.0\nnoise-multiplier = 3.0\ndelta = 0.02\n"
    "[training]\nrounds = 7\nclipping = false\n"
)


def written(tmp_path, content):
    path = tmp_path / "experiment.toml"
    path.write_text(content)
    return path


def test_a_configuration_is_labelled_as_its_report_would_be(tmp_path):
    content = "[privacy]\nrho-beta = 0.0\nnoise-multiplier = 3.0\n"
    seeded = written(tmp_path, content)
    answer = document(f"account {seeded}")
    assert answer["dp_guarantee"] is False
    assert "run's seed" in answer["dp_note"]
    printed = text(f"account {seeded}")
    assert printed.index("No DP guarantee. The noise came") < printed.index("An adversary at this")
    honest = written(tmp_path, content + 'noise-source = "system"\n')
    assert document(f"account {honest}")["dp_guarantee"] is True
    assert "A DP guarantee. The operating system" in text(f"account {honest}")
    assert document(f"account {honest} --vantage server")["dp_guarantee"] is False
    assert "dp_guarantee" not in document(ACCOUNT)


def test_without_clipping_the_lack_of_clipping_is_blamed(tmp_path):
    path = written(tmp_path, UNCLIPPED)
    answer = document(f"account {path}")
    assert answer["noise_multiplier"] == 0
    assert answer["epsilon"] is None
    assert "not clipped" in answer["note"]
    assert all("not clipped" in row["note"] for row in answer["to_whom"])
    printed = text(f"account {path}")
    assert "Noise multiplier 0 " in printed
    assert "gradients are not clipped" in printed
    assert "No protection" not in printed


def test_more_information_than_a_bit_says_nothing():
    printed = text("account --noise-multiplier 0.5 --rounds 30 --delta 0.01")
    # 30/2 ln(1 + 1/(4 z^2)) nats.
    assert f"PAC privacy gives no bound: {15 * math.log(2):.6g} nats" in printed
    assert "a guess is right" not in printed


def test_an_epsilon_larger_than_any_float_has_a_note():
    rows = document("account --noise-multiplier 0.02 --rounds 3 --delta 0.01")["accountants"]
    assert rows["advanced"]["epsilon"] is None
    assert rows["advanced"]["note"] == "epsilon is larger than any float, so that it has no value"
    assert rows["pld"]["epsilon"] > 1000
    assert rows["pld"]["note"] is None


def test_an_unknown_key_among_the_rounds_is_named(tmp_path):
    top = written(tmp_path, "q = 1\n[[rounds]]\nnoise-multiplier = 4.0\n")
    assert "unknown key 'q'" in refusal(f"account {top} --delta 0.1")
    inside = written(tmp_path, "[[rounds]]\nnoise-multiplier = 4.0\nq = 1\n")
    assert "unknown key 'q' in rounds.0" in refusal(f"account {inside} --delta 0.1")


def test_a_belief_is_never_printed_as_certainty_while_epsilon_is_finite():
    printed = text("account --noise-multiplier 0.5 --rounds 400 --delta 1e-5")
    row = printed.split("advanced: advanced composition")[1]
    assert ">0.999999" in row.split("basic")[0]
