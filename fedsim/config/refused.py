"""Which combinations of settings are refused, and why: one table, read from top to bottom.

A new trust model, noise, challenge or audit that does not go with something adds its row here; what
takes arithmetic is in `fedsim.config.experiment`. docs/reference/configuration.md shows the
table.
"""

from fedsim.config.needs import Need, above, at_least, below, differs, equals, even, one_of
from fedsim.config.refused_challenges import OF_CHALLENGES
from fedsim.config.refused_kinds import (
    BY_CANDIDATE,
    GAUSSIAN,
    OF_NO_CANDIDATES,
    OF_OWN_LAW,
    UNBOUNDED,
    trusts,
)

REFUSED = (
    # --- Whose messages the server sees
    Need(
        what=(trusts(lambda model: not model.summed_securely),),
        needs=(equals("federation.secure-aggregation", "simulated"),),
        why="where the server sees every message",
        instead='federation.trust = "distributed"',
    ),
    Need(
        what=(equals("federation.auditor-sees", "messages"),),
        needs=(equals("federation.trust", "local"),),
        why="where each client's message has the whole noise",
        instead='federation.auditor-sees = "sums"',
    ),
    # --- Noise that is shaped by candidates, and its prior
    Need(
        what=(BY_CANDIDATE,),
        needs=(above("privacy.mutual-information", 0),),
        why="which is scaled to this budget of information and to no other target",
        instead='privacy.noise = "isotropic"',
    ),
    Need(
        what=(OF_NO_CANDIDATES,),
        needs=(equals("privacy.pac-prior", "pair"),),
        why="which no prior shapes",
        instead='privacy.noise = "pac"',
    ),
    Need(
        what=(equals("privacy.pac-prior", "halves"),),
        needs=(equals("privacy.neighbouring", "add-remove"),),
        why="in which a record is there or is not",
        instead='privacy.pac-prior = "pair"',
    ),
    Need(
        what=(BY_CANDIDATE,),
        needs=(equals("privacy.sensitivity", "global"),),
        why="which no sensitivity scales",
        instead='privacy.noise = "isotropic"',
    ),
    # --- Keys that only some kinds of challenge have
    Need(
        what=(one_of("challenge.kind", "record", "gradient"),),
        needs=(equals("challenge.label", -1),),
        why="which is given no label",
        instead="another challenge.kind",
    ),
    Need(
        what=(differs("challenge.kind", "gradient"),),
        needs=(equals("challenge.coordinate", -1),),
        why="which has a gradient of its own",
        instead='challenge.kind = "gradient"',
    ),
    Need(
        what=(differs("challenge.kind", "record"),),
        needs=(equals("challenge.replacement", -1),),
        why="which D' has nothing of the pool in place of",
        instead='challenge.kind = "record"',
    ),
    # --- Trials in pairs, and in both worlds
    Need(
        what=(equals("trials.worlds", "d-only"),),
        needs=(equals("trials.pairing", "independent"), equals("trials.until-halfwidth", 0)),
        why="where nothing has an interval and no trial a partner",
        instead='trials.worlds = "both"',
    ),
    Need(
        what=(equals("trials.pairing", "common"),),
        needs=(even("trials.batch"),),
        why="where pairs of trials stay together",
        instead='trials.pairing = "independent"',
    ),
    Need(
        what=(above("trials.until-halfwidth", 0),),
        needs=(even("trials.batch"),),
        why="where pairs of trials stay together",
        instead="trials.until-halfwidth = 0",
    ),
    Need(
        what=(equals("trials.worlds", "both"),),
        needs=(even("trials.count"),),
        why="where half of the trials train on D and half on D'",
        instead='trials.worlds = "d-only"',
    ),
    # --- What clients say of a model
    Need(
        what=(above("federation.measures-share", 0),),
        needs=(above("federation.measures-epsilon", 0),),
        why="where clients hold records back to say how the model answers for them",
        instead="federation.measures-share = 0",
    ),
    Need(
        what=(above("federation.measures-epsilon", 0),),
        needs=(equals("privacy.unit", "record"), equals("model.task", "classification")),
        why="where each record is in one cell of a client's confusion matrix",
        instead="federation.measures-epsilon = 0",
    ),
    # --- What a unit of privacy knows
    Need(
        what=(equals("privacy.unit", "client"),),
        needs=(
            equals("training.sampling-rate", 1.0),
            equals("training.local-steps", 1),
            equals("training.clipping", True),
            OF_NO_CANDIDATES,
            equals("audit.bayesian-pairs", 0),
            equals("challenge.record", -1),
            equals("challenge.replacement", -1),
        ),
        why="where a client sends one clipped update and all its data are the target",
        instead='privacy.unit = "record"',
    ),
    Need(
        what=(below("federation.sampling-rate", 1),),
        needs=(
            equals("privacy.neighbouring", "add-remove"),
            equals("privacy.sensitivity", "global"),
            equals("privacy.noise-source", "seed"),
            GAUSSIAN,
            equals("training.local-steps", 1),
            equals("audit.bayesian-pairs", 0),
            equals("canaries.count", 0),
            equals("run.job", "experiment"),
        ),
        why="where only some clients join a round: that is simulated, by coins of the seed",
        instead="federation.sampling-rate = 1.0",
    ),
    Need(
        what=(
            below("federation.sampling-rate", 1),
            equals("privacy.unit", "client"),
            trusts(lambda model: model.server_draws),
        ),
        needs=(equals("federation.tolerated-dropouts", 0), equals("federation.dropout-rate", 0)),
        why="where nobody is told who joined, and a missing client would be named",
        instead='federation.trust = "distributed"',
    ),
    Need(
        what=(equals("federation.adversary-rounds", "own"),),
        needs=(
            below("federation.sampling-rate", 1),
            equals("privacy.unit", "client"),
            trusts(lambda model: model.server_draws),
            equals("audit.mode", "participant"),
            equals("training.optimizer", "sgd"),
            equals("training.momentum", 0),
            equals("training.schedule", "constant"),
            equals("training.warmup-rounds", 0),
        ),
        why="where the sum of several rounds is read from two models, by server steps of one size",
        instead='federation.adversary-rounds = "every"',
    ),
    Need(
        what=(equals("privacy.unit", "record"),),
        needs=(
            equals("training.local-epochs", 1),
            equals("training.local-batches", 0),
            equals("training.local-momentum", 0),
            equals("training.proximal-term", 0),
            equals("training.batch-size", 0),
        ),
        why="where a client sends its gradients and one record is the target",
        instead='privacy.unit = "client"',
    ),
    Need(
        what=(above("training.local-batches", 0),),
        needs=(equals("training.local-epochs", 1),),
        why="which says by itself how long a client trains",
        instead="training.local-batches = 0",
    ),
    Need(
        what=(at_least("challenge.client", 0),),
        needs=(equals("challenge.record", -1),),
        why="and a given record is whoever's it is",
        instead="challenge.client = -1",
    ),
    # --- Steps
    Need(
        what=(differs("training.optimizer", "sgd"),),
        needs=(equals("training.momentum", 0),),
        why="which has none (training.beta1 is adam's)",
        instead='training.optimizer = "sgd"',
    ),
    Need(
        what=(equals("training.local-steps", 1), equals("privacy.unit", "record")),
        needs=(equals("training.local-learning-rate", 0),),
        why="where no client steps on its own",
        instead="training.local-steps above 1",
    ),
    Need(
        what=(equals("privacy.neighbouring", "replace"), below("training.sampling-rate", 1)),
        needs=(equals("privacy.sensitivity", "global"),),
        why="where no one distance describes the pair",
        instead='privacy.neighbouring = "add-remove"',
    ),
    # --- Local steps
    Need(
        what=(above("training.local-steps", 1),),
        needs=(trusts(lambda model: model.local_steps),),
        why="whose noise each client must add itself before its next step",
        instead="training.local-steps = 1",
    ),
    Need(
        what=(above("training.local-steps", 1), below("training.sampling-rate", 1)),
        needs=(equals("privacy.neighbouring", "add-remove"),),
        why="where a sum counts how often one record was drawn, and not which of two",
        instead='privacy.neighbouring = "add-remove"',
    ),
    Need(
        what=(above("training.local-steps", 1),),
        needs=(equals("audit.bayesian-pairs", 0),),
        why="and gradients are compared at the model of the round and not within it",
        instead="training.local-steps = 1",
    ),
    Need(
        what=(above("training.local-steps", 1),),
        needs=(equals("privacy.sensitivity", "global"),),
        why="and a sensitivity is measured at the model of the round and not within it",
        instead="training.local-steps = 1",
    ),
    Need(
        what=(above("training.local-steps", 1),),
        needs=(equals("audit.mode", "participant"),),
        why="after which the noise alone does not tell the belief",
        instead="training.local-steps = 1",
    ),
    Need(
        what=(above("training.local-steps", 1),),
        needs=(equals("federation.colluding", 0), equals("federation.tolerated-dropouts", 0)),
        why="accounted for clients that all answer and keep their noise to themselves",
        instead="training.local-steps = 1",
    ),
    # --- What noise with a law of its own goes with, and what is shaped by candidates
    Need(
        what=(OF_OWN_LAW,),
        needs=(
            trusts(lambda model: model.server_draws),
            equals("training.sampling-rate", 1.0),
            equals("training.local-steps", 1),
            equals("federation.vantage", "participant"),
            equals("federation.tolerated-dropouts", 0),
            equals("audit.mode", "oracle"),
            equals("audit.vantages", "configured"),
        ),
        why="where the server adds noise whose law it works out from what an oracle audit reads",
        instead='privacy.noise = "isotropic"',
    ),
    Need(
        what=(BY_CANDIDATE,),
        needs=(
            equals("training.clipping", True),
            equals("audit.bayesian-pairs", 0),
            equals("trials.worlds", "both"),
            equals("run.precision", "float32"),
        ),
        why="where the server compares what all candidates would send",
        instead='privacy.noise = "isotropic"',
    ),
    Need(
        what=(BY_CANDIDATE,),
        needs=(equals("federation.colluding", 0),),
        why="whose candidates are sums over all clients",
        instead='privacy.noise = "isotropic"',
    ),
    Need(
        what=(BY_CANDIDATE,),
        needs=(differs("challenge.kind", "gradient"), equals("challenge.copies", 1)),
        why="whose candidates are sets of records",
        instead='privacy.noise = "isotropic"',
    ),
    # --- Integers of a stated range
    Need(
        what=(trusts(lambda model: model.summed_securely),),
        needs=(equals("training.clipping", True),),
        why="where clients send integers of a stated range and nothing bounds their sums",
        instead='federation.trust = "local"',
    ),
    Need(
        what=(trusts(lambda model: model.summed_securely),),
        needs=(equals("privacy.sensitivity", "global"),),
        why="where nothing that clients send may have a range which depends on the data",
        instead='federation.trust = "local"',
    ),
    Need(
        what=(above("audit.bayesian-pairs", 0),),
        needs=(equals("federation.tolerated-dropouts", 0),),
        why="which compares the gradients of all clients in every round",
        instead="audit.bayesian-pairs = 0",
    ),
    # --- Sums that nothing bounds, and targets that no noise meets
    Need(
        what=(BY_CANDIDATE,),
        needs=(equals("privacy.stop-at", 0),),
        why="which is no differential privacy: epsilon is infinite from the first round on "
        "(privacy.mutual-information is the budget)",
        instead='privacy.noise = "isotropic"',
    ),
    Need(
        what=(equals("training.clipping", False),),
        needs=(
            equals("privacy.rho-beta", 0),
            equals("privacy.rho-alpha", 0),
            equals("privacy.epsilon", 0),
            equals("privacy.mutual-information", 0),
        ),
        why=f"so that {UNBOUNDED} and no noise meets a target (give privacy.noise-multiplier)",
        instead="training.clipping = true",
    ),
    Need(
        what=(equals("training.clipping", False),),
        needs=(equals("privacy.stop-at", 0),),
        why=f"so that {UNBOUNDED} and epsilon is infinite from the first round on",
        instead="training.clipping = true",
    ),
    *OF_CHALLENGES,
)
"""Checked in this order: the first that is not met is the one that is complained about."""
