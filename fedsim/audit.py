"""From a transcript to a report: what the adversary achieved, beside what theory allows."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import logit

from adversaries import estimators, forecast, membership
from adversaries.agreement import Comparison
from adversaries.intervals import ALARM_CONFIDENCE, Interval
from fedsim import (
    bounds_audit,
    crafted_report,
    identifiability,
    ledger,
    membership_audit,
    one_run_report,
    pac,
    precision,
    residual_report,
    run_transcript,
    trust_report,
    vantage_report,
)
from fedsim.accounting import PLD, Accountant, accountant
from fedsim.bayesian_audit import bayesian_report
from fedsim.config import Config
from fedsim.errors import InputError
from fedsim.group_privacy import of_group
from fedsim.mechanism import Mechanism, Neighbouring, Trust, Vantage, sensitivity
from fedsim.run_directory import Arrays, RunDirectory
from fedsim.strict_json import strict_json
from fedsim.vantages import measured

MECHANISM_KEYS = {"rounds", "clipping_norm", "clipping", "sampling_rate", "local_steps"}
"""Keys of the training that the report lists under the mechanism."""

UNCLIPPED = "gradients are not clipped: nothing bounds what one record can change"
"""Why no vantage has a guarantee where clipping is off."""

SIMULATED_GAMES, SIMULATED_STEPS = 200_000, 20_000_000
"""How many games a prediction under sampling plays: as many as this, in at most so many steps."""

EXCESS = 1 + 1e-4
"""By what factor the realised mu may be above that of the accounting: gradients are rounded."""

SIMULATION_SEED = 0x5EED
"""Of the prediction alone: whoever reads the same transcript gets the same report."""

PAC_NOISE_NOTE = (
    "PAC noise hides nothing along directions in which the stated candidates do not differ: it "
    "bounds the information about which candidate was used, and is not a DP guarantee."
)

SENSITIVITY_NOTE = (
    "Local sensitivities are measured on the data: they say how tight the theory is, and are never "
    "part of a DP release."
)


def write_report(
    directory: RunDirectory, confidence: float | None = None, delta: float | None = None
) -> dict[str, Any]:
    """Write report.json, the figures and report.html of a run from its facts and transcript.

    `confidence` and `delta` replace the configured ones. Returns the report. Raises InputError.
    """
    from fedsim import report as rendering  # noqa: PLC0415  (matplotlib is slow to import)

    for name, value in (("confidence", confidence), ("delta", delta)):
        if value is not None and not 0 < value < 1:
            raise InputError(f"{name} is {value}; it must lie between 0 and 1")
    transcript = run_transcript.read(directory)
    facts = directory.read_json("facts.json")
    config = directory.config
    report = assemble(
        config,
        facts,
        transcript,
        confidence or config.audit.confidence,
        delta or config.privacy.delta,
        ledger.verified(directory),
    )
    pictures = rendering.Pictures(report, transcript)
    rendering.write_figures(pictures, directory.path / "figures")
    directory.write_text("report.html", rendering.render_html(report, pictures))
    # Last, because its presence says that the run is finished.
    directory.write_json("report.json", report)
    return report


def assemble(
    config: Config,
    facts: Mapping[str, Any],
    transcript: Arrays,
    confidence: float,
    delta: float,
    rows: Sequence[ledger.Row] = (),
) -> dict[str, Any]:
    """Return report.json as a dictionary of JSON values; infinity is null, explained beside it.

    rows: of the run's ledger, which says what was released; without any it is what was planned, as
    far as the transcript goes.
    """
    nominal, rounds = facts["noise_multiplier"], transcript["log_odds"].shape[1]
    of_one = ledger.describe(config, nominal, rows, facts["challenge"]["owner"], rounds)
    description = of_group(of_one, config.challenge.copies)
    mechanism = description.towards(config.federation.vantage)
    bounds = identifiability.bounds(mechanism, delta, config.privacy.accountant)
    everywhere = [
        row if config.training.clipping else replace(row, note=UNCLIPPED)
        for row in identifiability.vantage_bounds(description, delta)
    ]
    predictions = _predictions(config, transcript)
    mine = predictions[config.federation.vantage]
    comparisons = bounds_audit.comparisons_of(config, mine, transcript)
    report: dict[str, Any] = {
        "name": config.run.name,
        "created": facts["created"],
        "seed": config.run.seed,
        "versions": facts["versions"],
        "runtime": facts["runtime"],
        "device": facts["device"],
        "noise_source": config.privacy.noise_source,
        "trust": config.federation.trust.value,
        "vantage": config.federation.vantage.value,
        "unit": config.privacy.unit,
        "neighbouring": config.privacy.neighbouring.value,
        "prior": config.audit.prior,
        "trials": len(transcript["worlds"]),
        "rounds": rounds,
        "owners": config.federation.owners,
        "colluding": config.federation.colluding,
        "data": {
            "name": facts["dataset"],
            "records": config.data.records,
            "held_out": facts["held_out"],
            "partition": config.federation.partition,
            "partition_key": config.federation.partition_key or None,
            "owner_sizes": facts["owner_sizes"],
            "label_skew": facts.get("label_skew"),  # absent in older runs
        },
        "model": {
            "name": config.model.name,
            "parameters": facts["parameters"],
            # Absent in runs from before there was a choice.
            "gradient_fallbacks": facts.get("gradient_fallbacks"),
            "frozen": config.model.frozen,
            "frozen_parameters": facts.get("frozen_parameters", 0),
            "batch_norm": config.model.batch_norm,
        },
        "precision": facts.get("precision", config.run.precision),
        "training": config.training.model_dump(exclude=MECHANISM_KEYS),
        "audit_mode": config.audit.mode,
        "challenge": _challenge(config, facts),
        "mechanism": {
            "noise_multiplier": nominal,
            "effective_noise_multiplier": _common_noise_multiplier(
                of_one.towards(config.federation.vantage)
            ),
            "clipping_norm": config.training.clipping_norm,
            "clipping": config.training.clipping,
            "sensitivity": config.privacy.sensitivity,
            "noise": config.privacy.noise,
            "steps": mechanism.steps,
            "mu": mechanism.mu,
            "local_steps": config.training.local_steps,
            "sampling_rate": config.training.sampling_rate,
            "learning_rate": config.training.learning_rate,
            "rounding": trust_report.rounding(config, nominal, facts["parameters"], rounds),
            "dp_guarantee": not dp_failings(config),
            "dp_note": dp_note(config),
        },
        "bounds": {
            **asdict(bounds),
            "vantages": [asdict(row) for row in everywhere],
        },
        "dropouts": trust_report.dropouts(config, nominal, rows),
        "budget": _budget(config, nominal, transcript, rows, delta),
        "prediction": predictions[config.federation.vantage],
        "empirical": _empirical(
            config, mechanism, transcript, bounds.epsilon, confidence, delta, comparisons
        ),
        "membership_inference": {
            **_membership(config, transcript, confidence),
            **membership_audit.attacks(config, transcript, confidence),
        },
        "membership_missing": membership_audit.why_none(config, transcript),
        "bayesian": bayesian_report(config, transcript, delta, description),
        # A canary is one record, whatever the group in question is.
        "one_run": one_run_report.report(config, transcript, of_one, delta, confidence),
        "utility": _utility(transcript, facts["held_out"]),
        "timing": facts["timing"],
    }
    report["vantages"] = vantage_report.report(
        config, transcript, everywhere, predictions, delta, confidence
    )
    report["pac"] = _pac(config, mechanism, transcript, report["empirical"]["advantage"], delta)
    report["crafted"] = crafted_report.report(
        config,
        facts["challenge"],
        transcript,
        of_one,
        delta,
        confidence,
        not_normal=bounds_audit.not_normal(config, transcript),
        not_gaussian=bounds_audit.refused(config).get("mu_gdp"),
        played=precision.design(config, len(transcript["worlds"])),
    )
    report["residuals"] = residual_report.report(
        config, transcript, confidence, precision.design(config, len(transcript["worlds"]))
    )
    report["campaign"] = precision.assemble(
        config, facts, transcript, report["empirical"], report["prediction"]["advantage"]
    )
    report["alarms"] = _alarms(config, mechanism, transcript, report, comparisons)
    report["chance_alarms"] = _chances(config, transcript, report, comparisons)
    report["warnings"] = [
        *report["alarms"].values(),
        *_cautions(config),
        *precision.cautions(config, len(transcript["worlds"])),
        *precision.imprecise(report["campaign"]),
        *trust_report.cautions(config, report),
        *one_run_report.cautions(report["one_run"]),
        *_budget_cautions(report["budget"]),
    ]
    finite: dict[str, Any] = strict_json(report)
    return finite


def _challenge(config: Config, facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the challenge, with how many records it is and what D' has in its place."""
    found = facts["challenge"] | {"records": _in_question(config, facts)}
    if config.challenge.is_made and found["replacement"] is not None:
        # Its position is beyond the records of the pool.
        found["replacement"] = "the original record"
    return found


def _in_question(config: Config, facts: Mapping[str, Any]) -> int:
    """Return how many records the neighbouring datasets differ in."""
    if config.privacy.unit == "record":
        return config.challenge.copies
    return int(facts["owner_sizes"][facts["challenge"]["owner"]])


def _pac(
    config: Config, mechanism: Mechanism, transcript: Arrays, advantage: float, delta: float
) -> dict[str, Any]:
    """Return what the run tells of the secret on average over its prior, and what that allows.

    mutual_information: nats that all rounds tell at most; realised_information: the mean over the
    trials of what PAC noise came to, None for other noise. candidate_success_bound: how often
    anybody names the secret one of m random halves, from p0 = 1/m; None for a pair, whose candidate
    the question of the audit is about.
    """
    by_pac, halves = config.privacy.noise == "pac", config.privacy.pac_prior == "halves"
    realised = None
    if by_pac:
        information = config.privacy.mutual_information
        realised = float(transcript["mutual_information"].sum(1).mean())
    else:
        information = pac.mutual_information(mechanism)
    prior = (
        f"{config.candidates} random halves of the records of all owners but the adversary"
        if halves
        else "D and D' at even odds"
    )
    note = (
        "Bounds how often the secret is guessed on average over the stated prior, not for every "
        "person in it. equivalent_epsilon is the epsilon whose bound on success is the same, not "
        "a DP guarantee."
    )
    return {
        **asdict(pac.guarantee(information, delta)),
        "realised_information": realised,
        "prior": config.privacy.pac_prior,
        "prior_description": prior,
        "candidates": config.candidates if by_pac else 2,
        "candidate_success_bound": pac.success_bound(information, 1 / config.candidates)
        if halves
        else None,
        "success": (1 + advantage) / 2,
        "note": f"{note} {PAC_NOISE_NOTE}" if by_pac else note,
    }


def _common_noise_multiplier(mechanism: Mechanism) -> float | None:
    """Return the noise multiplier of all steps: 0 if any has none, None where they differ."""
    multipliers = {group.noise_multiplier for group in mechanism.groups}
    if mechanism.noiseless:
        return 0.0
    return multipliers.pop() if len(multipliers) == 1 else None


def _budget(
    config: Config, nominal: float, transcript: Arrays, rows: Sequence[ledger.Row], delta: float
) -> dict[str, Any]:
    """Return what the rounds cost the worst owner of the worst cohort, at this delta.

    Colluders are left out: their records are no secret.
    """
    spent, run = transcript.get(ledger.EPSILON), transcript["log_odds"].shape[1]
    if spent is None or delta != config.privacy.delta:
        restated = config.privacy.model_copy(update={"delta": delta})
        spent = ledger.curve(config.model_copy(update={"privacy": restated}), nominal, rows, run)
    # A budget is for those whom a guarantee is meant for.
    worst = np.delete(spent, sorted(ledger.colluders(rows)), axis=0).max(axis=0)
    vantages, stop_at = list(Vantage), config.privacy.stop_at
    return {
        "stop_at": stop_at or None,
        "stop_at_delta": config.privacy.delta if stop_at else None,
        "delta": delta,
        "accountant": config.privacy.accountant,
        "vantage": config.federation.vantage.value,
        "rounds_planned": config.training.rounds,
        "rounds_run": run,
        "stopped": run < config.training.rounds,
        "epsilon": {
            vantage.value: float(worst[place, -1]) for place, vantage in enumerate(vantages)
        },
        "epsilon_by_round": worst[vantages.index(config.federation.vantage)].tolist(),
        "earlier_attempts": ledger.earlier_rounds(config, rows),
    }


def _predictions(config: Config, transcript: Arrays) -> dict[Vantage, dict[str, Any]]:
    """Return what theory predicts for the run at every vantage that was measured."""
    primary = config.federation.vantage
    views = {
        vantage: vantage_report.seen_from(transcript, vantage, primary)
        for vantage in measured(config)
    }
    # A transcript without the arrays of another vantage is from before there was a choice.
    return {vantage: _prediction(config, seen, vantage) for vantage, seen in views.items() if seen}


def _prediction(config: Config, transcript: Arrays, vantage: Vantage) -> dict[str, Any]:
    """Return what theory predicts for the run itself, and how well the run follows it."""
    prior = config.audit.prior
    if special := vantage_report.prediction(config, transcript, vantage):
        return special
    if config.privacy.pac_prior == "halves":
        # A mixture over candidates, whose distances nobody knows in advance.
        return {
            "mu": None,
            "advantage": None,
            "standard_error": None,
            "deterministic": False,
            "method": "none",
            "fit": {"world_d": None, "world_d_prime": None},
            "density": None,
        }
    predicted = forecast.predict(transcript["sensitivities"], transcript["noise_stds"], prior)
    worlds, final = transcript["worlds"], transcript["log_odds"][:, -1]
    if config.training.sampling_rate == 1:
        return {
            "mu": predicted.mu,
            "advantage": predicted.advantage,
            "standard_error": 0.0,
            "deterministic": predicted.deterministic,
            "method": "closed form",
            "fit": forecast.log_odds_fit(worlds, final, predicted.trial_mu, prior),
            "density": None,
        }
    simulation = _simulation(config, transcript)
    advantage, error = simulation.advantage, simulation.standard_error
    if not _two_sided(transcript):
        # What is measured then is 2 TPR - 1, which is TPR - FPR only for symmetric worlds.
        sample = simulation.world_d + logit(prior)
        one_sided = estimators.advantage(np.ones(sample.size, bool), sample, 0.95)
        advantage, error = one_sided.point, one_sided.standard_error
    return {
        "mu": predicted.mu,
        "advantage": advantage,
        "standard_error": error,
        "deterministic": simulation.deterministic,
        "method": "simulation",
        "fit": forecast.simulated_fit(worlds, final, simulation, prior),
        "density": _density(simulation, prior),
    }


def _simulation(config: Config, transcript: Arrays) -> forecast.Simulation:
    """Play the sampled steps of the transcript again. Raises InputError if it lacks the norms."""
    names = "present_norms", "absent_norms", "sensitivities", "noise_stds"
    missing = [name for name in names if name not in transcript]
    if missing:
        raise InputError(
            f"the transcript has no array '{missing[0]}', without which sampled steps cannot be "
            "predicted; run the experiment again"
        )
    steps = transcript["sensitivities"].shape[1]
    return forecast.simulate(
        transcript["present_norms"],
        transcript["absent_norms"],
        transcript["sensitivities"],
        transcript["noise_stds"],
        config.training.sampling_rate,
        np.random.default_rng(SIMULATION_SEED),
        prior=config.audit.prior,
        games=max(1000, min(SIMULATED_GAMES, SIMULATED_STEPS // steps)),
    )


def _density(simulation: forecast.Simulation, prior: float) -> dict[str, list[float]]:
    """Return a histogram of the simulated final log-odds: 101 edges, 100 densities per world.

    The outermost thousandth at either end is left out of the edges and counts in the densities.
    """
    both = np.concatenate([simulation.world_d, simulation.world_d_prime])
    low, high = np.quantile(both, [0.001, 0.999])
    # One value alone, as where every gradient is 0, still needs a bin of some width.
    edges = np.linspace(low, high if high > low else low + 1, 101)

    def heights(sample: npt.NDArray[np.float64]) -> list[float]:
        counts, _ = np.histogram(sample, edges)
        densities: list[float] = (counts / (sample.size * np.diff(edges))).tolist()
        return densities

    return {
        "edges": (edges + logit(prior)).tolist(),
        "world_d": heights(simulation.world_d),
        "world_d_prime": heights(simulation.world_d_prime),
    }


def _empirical(
    config: Config,
    mechanism: Mechanism,
    transcript: Arrays,
    epsilon: float,
    confidence: float,
    delta: float,
    comparisons: list[Comparison],
) -> dict[str, Any]:
    worlds, final = transcript["worlds"], transcript["log_odds"][:, -1]
    norms = transcript["sensitivities"]
    played = precision.design(config, len(worlds))
    advantage = estimators.advantage(worlds, final, confidence, played)
    # Epsilon bounds the privacy loss, which is the log-odds without what the prior put in.
    loss = final - logit(config.audit.prior)
    exceeded = estimators.delta_prime(worlds, loss, epsilon, played.level(confidence))
    return {
        "advantage": advantage.point,
        # Trials on D alone measure 2 TPR - 1, which is no advantage and has no bound.
        "advantage_interval": _interval(advantage.interval if _two_sided(transcript) else None),
        "standard_error": advantage.standard_error,
        "confidence": confidence,
        "wins": advantage.wins,
        "losses": advantage.losses,
        "ties": advantage.ties,
        "delta_prime": exceeded.point,
        "delta_prime_interval": [exceeded.interval.low, exceeded.interval.high],
        "epsilon": {
            "sensitivity": _epsilon_from_sensitivities(
                config, transcript, delta, accountant("rdp-classic")
            ),
            "sensitivity_exact": _epsilon_from_sensitivities(config, transcript, delta, PLD),
            "belief": estimators.epsilon_from_belief(worlds, loss),
            "advantage": estimators.epsilon_from_advantage(advantage.point, delta),
        },
        **bounds_audit.report(
            bounds_audit.bounds_of(config, mechanism, transcript, delta, confidence),
            comparisons,
            bounds_audit.profile_of(config, mechanism, transcript, confidence),
        ),
        "sensitivity_rms": float(np.sqrt(np.mean(norms**2))),
        "sensitivity_max": float(norms.max()),
        # Of every step and trial: `sensitivities` of transcript.npz.
        "sensitivity_by_round": {
            "rms": np.sqrt(np.mean(norms**2, axis=0)).tolist(),
            **dict(
                zip(
                    ("low", "median", "high"),
                    np.quantile(norms, (0.05, 0.5, 0.95), axis=0).tolist(),
                    strict=True,
                )
            ),
        },
        "sensitivity_note": SENSITIVITY_NOTE,
        # Clipping bounds a step; the worlds may drift further apart over an owner's own steps.
        "sensitivity_bound": config.challenge.copies
        * sensitivity(config.privacy.neighbouring, config.training.clipping_norm)
        if config.training.local_steps == 1
        and config.training.clipping
        and config.federation.vantage is not Vantage.RELEASED_MODEL
        else None,
    }


def _epsilon_from_sensitivities(
    config: Config, transcript: Arrays, delta: float, judge: Accountant
) -> float | None:
    """Return the paper's estimator by one accountant; None where no one distance is the pair's.

    Of sampled steps it takes every step of a trial at the trial's root mean square ratio. Under
    replace neighbours these depend on both gradients, and not only on how far they lie apart.
    """
    q, steps = config.training.sampling_rate, transcript["sensitivities"].shape[1]
    if config.privacy.pac_prior == "halves":
        return None
    if q < 1 and config.privacy.neighbouring is Neighbouring.REPLACE:
        return None
    if q < 1 and config.federation.vantage is Vantage.RELEASED_MODEL:
        return None

    def epsilon(mu: float, delta: float) -> float:
        if mu == 0:
            return 0.0
        return judge.epsilon(Mechanism.alike(math.sqrt(steps) / mu, steps, q), delta)

    return estimators.epsilon_from_sensitivities(
        transcript["sensitivities"], transcript["noise_stds"], delta, epsilon
    )


def _membership(config: Config, transcript: Arrays, confidence: float) -> dict[str, Any]:
    rates = transcript["true_positive_rate"], transcript["false_positive_rate"]
    played = precision.design(config, len(transcript["worlds"]))
    if played.common:  # pairs are what is independent
        rates = rates[0].reshape(-1, 2).mean(1), rates[1].reshape(-1, 2).mean(1)
    population = membership.membership_advantage(*rates, played.level(confidence))
    # Of random halves, half of the records that the attack takes for members are none.
    scored = config.privacy.pac_prior != "halves"
    found = {
        "yeom": {
            "advantage": population.point if scored else None,
            "advantage_interval": _interval(population.interval) if scored else None,
            "tpr": float(rates[0].mean()) if scored else None,
            "fpr": float(rates[1].mean()),
        }
    }
    if config.challenge.kind == "gradient":
        return found
    challenge = membership.challenge_advantage(
        transcript["worlds"], transcript["challenge_is_member"], confidence, played
    )
    found["yeom_challenge"] = {
        "advantage": challenge.point,
        "advantage_interval": _interval(challenge.interval if _two_sided(transcript) else None),
    }
    return found


def _two_sided(transcript: Arrays) -> bool:
    """Whether there are trials of both worlds."""
    return len(np.unique(transcript["worlds"])) == 2


def _interval(interval: Interval | None) -> list[float] | None:
    return None if interval is None else [interval.low, interval.high]


def _utility(transcript: Arrays, records: int) -> dict[str, Any]:
    def band(curves: npt.NDArray[np.float64]) -> dict[str, list[float]]:
        low, high = np.quantile(curves, [0.05, 0.95], axis=1)
        return {"mean": curves.mean(1).tolist(), "low": low.tolist(), "high": high.tolist()}

    accuracies = transcript["accuracies"]
    return {
        "rounds": list(range(len(accuracies))),
        "accuracy": band(accuracies),
        "loss": band(transcript["losses"]),
        "trials": accuracies.shape[1],
        "records": records,
    }


def dp_note(config: Config) -> str:
    return " ".join(dp_failings(config)) or (
        "Noise was keyed by the operating system's entropy (a Philox stream for each trial, round "
        "and owner) and scaled to the global sensitivity."
    )


def dp_failings(config: Config) -> list[str]:
    """Return every reason why the run gives nobody a guarantee."""
    failings = []
    if config.privacy.noise == "pac":
        failings.append(PAC_NOISE_NOTE)
    if not config.training.clipping:
        failings.append(f"{UNCLIPPED.capitalize()}, so that no noise is a DP guarantee.")
    if config.privacy.sensitivity == "local":
        failings.append(
            "Noise was scaled to the local sensitivity of the challenge, which depends on the "
            "data: a measurement of tightness, not a DP guarantee."
        )
    if config.model.initialisation == "worst-case":
        failings.append(
            "The first model was fitted to the records of D, without noise: a worst case for the "
            "challenge, not a DP guarantee. Protecting people needs model.initialisation = "
            '"random".'
        )
    if config.privacy.noise_source == "seed":
        failings.append(
            "Noise came from the run's seed, so that the experiment can be repeated; whoever knows "
            'the seed can remove it. Protecting people needs privacy.noise-source = "system".'
        )
    if config.federation.summed_in_the_clear:
        failings.append(
            "Secure aggregation was simulated: the server saw every message under a share of the "
            "noise only, and what is stated towards it is as if aggregated securely. Protecting "
            'people needs federation.secure-aggregation = "secagg+".'
        )
    if config.federation.colluding and config.federation.trust is not Trust.CENTRAL:
        failings.append(
            f"{config.federation.colluding} owners sent their noise to the adversary by way of the "
            "server, in the clear: their own records had no protection. Protecting people needs "
            "federation.colluding = 0."
        )
    if config.audit.mode == "instrumented":
        handed = (
            "the challenge record's gradient"
            if config.privacy.unit == "record"
            else "the challenged owner's update"
        )
        failings.append(
            f"The audit was instrumented: owners handed their noise and {handed} to the auditor, "
            "which is a measurement, not a DP guarantee. Protecting "
            'people needs audit.mode = "participant".'
        )
    if config.audit.bayesian_pairs:
        failings.append(
            "Owners released norms or distances of their records' gradients for the Bayesian "
            "accountant, without protection. Protecting people needs audit.bayesian-pairs = 0."
        )
    return failings


def _alarms(
    config: Config,
    mechanism: Mechanism,
    transcript: Arrays,
    report: Mapping[str, Any],
    comparisons: list[Comparison],
) -> dict[str, str]:
    """Return what contradicts theory beyond chance, by the name of the measure.

    At a confidence of its own: at the report's 95 % an honest mechanism would raise an alarm in one
    report of twenty. Local steps leave only what rests on counted decisions: their log-odds are no
    likelihood, so that what they say about the belief contradicts nothing.
    """
    worlds, final = transcript["worlds"], transcript["log_odds"][:, -1]
    exact_posterior = vantage_report.is_exact(config, config.federation.vantage)
    bounds, sure = report["bounds"], f"with confidence {ALARM_CONFIDENCE:g}"
    alarms = {}
    played = precision.design(config, len(worlds))
    level = played.level(ALARM_CONFIDENCE)
    low = estimators.advantage(worlds, final, ALARM_CONFIDENCE, played).interval.low
    if _two_sided(transcript) and low > bounds["rho_alpha"]:
        alarms["advantage"] = (
            f"The advantage is above its bound: at least {low:.3f} {sure}, but rho_alpha is "
            f"{bounds['rho_alpha']:.3f}. The noise is not what was accounted for, or a clipped "
            f"{'gradient' if config.privacy.unit == 'record' else 'update'} exceeds the "
            "sensitivity."
        )
    limit = report["pac"]["advantage_bound"]
    if _two_sided(transcript) and low > limit:
        alarms["pac_advantage"] = (
            f"The advantage is above what the mutual information allows: at least {low:.3f} "
            f"{sure}, but the bound of PAC privacy is {limit:.3f}. The noise is not what was "
            "budgeted, or the secret was not drawn from the stated prior."
        )
    loss = final - logit(config.audit.prior)
    low = estimators.delta_prime(worlds, loss, bounds["epsilon"], level).interval.low
    tail = bounds["tail_probability"]
    if exact_posterior and tail is not None and low > tail:
        alarms["delta_prime"] = (
            f"The belief passes rho_beta too often: in at least {low:.2g} of the trials on D "
            f"{sure}, but the tail of the privacy loss is {tail:.2g}."
        )
    alarms |= one_run_report.alarms(report["one_run"])
    alarms |= bounds_audit.alarms(config, mechanism, transcript, comparisons, bounds)
    alarms |= crafted_report.alarms(report["crafted"], transcript, played)
    alarms |= vantage_report.alarms(report["vantages"], config.federation.vantage)
    # No statistics: the steps that were taken are known, and so is what they come to.
    realised = float(forecast.trial_mu(transcript["sensitivities"], transcript["noise_stds"]).max())
    if exact_posterior and realised > EXCESS * mechanism.mu:
        alarms["composition"] = (
            f"More was released than is accounted for: the {report['rounds']} rounds of the "
            f"transcript come to mu = {realised:.3f}, but the accounting of "
            f"{mechanism.steps} steps allows {mechanism.mu:.3f}. Rounds "
            "were not all composed, or a difference exceeds the sensitivity."
        )
    alarms |= residual_report.alarms(report["residuals"], played)
    prediction = report["prediction"]
    exact = exact_posterior and prediction["deterministic"]
    theory = "N(+-mu^2/2, mu^2)" if config.training.sampling_rate == 1 else "those of sampled steps"
    for world, fit in prediction["fit"].items():
        if exact and fit and fit["p_value"] < 1 - level:
            alarms[world] = (
                f"The log-odds in {world} do not follow {theory} "
                f"(Kolmogorov-Smirnov p = {fit['p_value']:.2g}): the mechanism is not as claimed."
            )
    return alarms


def _chances(
    config: Config, transcript: Arrays, report: Mapping[str, Any], comparisons: list[Comparison]
) -> int:
    """Return how many of the alarms an honest run can raise, by chance.

    Each has a level of 1 - ALARM_CONFIDENCE to itself, so that as many times that bounds how often
    a report accuses an honest mechanism. "composition" is no statistics.
    """
    exact_posterior = vantage_report.is_exact(config, config.federation.vantage)
    prediction, crafted = report["prediction"], report["crafted"]
    found = [
        2 * _two_sided(transcript),  # the advantage against its bound, and that of PAC privacy
        exact_posterior and report["bounds"]["tail_probability"] is not None,
        report["one_run"] is not None,
        bounds_audit.chances(report["empirical"]["lower_bounds"], comparisons),
        crafted is not None and "released_model" in crafted["lower_bounds"],
        vantage_report.chances(report["vantages"], config.federation.vantage),
        residual_report.chances(report["residuals"]),
        exact_posterior
        and prediction["deterministic"]
        and sum(fit is not None for fit in prediction["fit"].values()),
    ]
    return sum(map(int, found))


def _cautions(config: Config) -> list[str]:
    cautions = []
    if config.federation.trust is Trust.CENTRAL:
        cautions.append(
            "Under central trust the server sees every owner's clean sum: towards the server there "
            "is no protection at all."
        )
    if config.training.local_steps > 1:
        cautions.append(
            "Owners took local steps, whose noisy models the adversary does not see: its log-odds "
            "are the score of a linearised attack, not an exact posterior. Belief, delta', epsilon "
            "from belief or from sensitivities, and the prediction describe that score and raise "
            "no alarm; the advantage and the Clopper-Pearson bound count decisions and stay valid."
        )
    if config.federation.vantage is Vantage.RELEASED_MODEL:
        cautions.append(
            "The adversary saw the released model alone: its log-odds are the score of an attack "
            "along a replay of the training, not an exact posterior. Belief, delta' and the "
            "prediction describe that score and raise no alarm; the advantage and the "
            "Clopper-Pearson bound count decisions and stay valid."
        )
    if config.challenge.copies > 1:
        cautions.append(
            f"The challenge is {config.challenge.copies} records together: bounds and predictions "
            "are those of the group, and the ledger, the budget and 'crafted' state what one "
            "record's are."
        )
    if config.trials.worlds == "d-only":
        cautions.append(
            "All trials train on D, as in the paper's own code: the advantage is 2 wins/T - 1, and "
            'bounds and intervals, which need both worlds (trials.worlds = "both"), are left out.'
        )
    if config.run.precision != "float32" and config.privacy.unit == "record":
        cautions.append(
            f"Forward and backward passes ran in {config.run.precision}; the beliefs are about the "
            "challenge's gradients in full precision, which the sums hold rounded."
        )
    if config.audit.prior != 0.5:
        cautions.append(
            f"The adversary decides from a prior of {config.audit.prior:g}; rho_beta, beliefs and "
            "delta' are stated from even odds, which is what epsilon bounds."
        )
    return cautions


def _budget_cautions(budget: Mapping[str, Any]) -> list[str]:
    cautions = []
    epsilon = f"epsilon {budget['epsilon'][budget['vantage']]:.4g} at delta {budget['delta']:g}"
    if budget["stopped"] and budget["stop_at"]:
        elsewhere = f" (at delta {budget['stop_at_delta']:g})"
        cautions.append(
            f"The training was stopped after {budget['rounds_run']} of {budget['rounds_planned']} "
            f"rounds, at {epsilon}: one more would have exceeded privacy.stop-at = "
            f"{budget['stop_at']:g}{elsewhere * (budget['delta'] != budget['stop_at_delta'])}."
        )
    if budget["earlier_attempts"]:
        cautions.append(
            f"Interrupted attempts released {budget['earlier_attempts']} rounds of the same "
            f"trials under noise of their own. The bounds count them ({epsilon}), but the "
            "adversary of this transcript did not see them."
        )
    return cautions
