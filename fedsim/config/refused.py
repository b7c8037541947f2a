"""The table of refused combinations of settings, with the reason for each.

A new trust model, noise, challenge or audit adds a row for each setting that it does not support.
Rules that need arithmetic are in `fedsim.config.experiment`. docs/reference/configuration.md shows
the table.
"""

from fedsim.config.needs import (
    BY_CANDIDATE,
    GAUSSIAN,
    OF_NO_CANDIDATES,
    OF_OWN_LAW,
    Need,
    above,
    at_least,
    below,
    differs,
    equals,
    even,
    one_of,
    trusts,
)
from fedsim.config.refused_challenges import OF_CHALLENGES

REFUSED = (
    # --- Messages that the server sees
    Need(
        what=(trusts(lambda model: not model.summed_securely),),
        needs=(equals("federation.secure-aggregation", "simulated"),),
        why="With this trust, the server sees every message.",
        instead='set federation.trust = "distributed"',
    ),
    Need(
        what=(equals("federation.auditor-sees", "messages"),),
        needs=(equals("federation.trust", "local"),),
        why="An auditor may see a message only if the message carries the whole noise.",
        instead='set federation.auditor-sees = "sums"',
    ),
    # --- Noise that is shaped by candidates, and its prior
    Need(
        what=(BY_CANDIDATE,),
        needs=(above("privacy.mutual-information", 0),),
        why="Noise shaped by candidates is scaled to a budget of mutual information, and to no "
        "other target.",
        instead='set privacy.noise = "isotropic"',
    ),
    Need(
        what=(OF_NO_CANDIDATES,),
        needs=(equals("privacy.pac-prior", "pair"),),
        why="No prior shapes this noise.",
        instead='set privacy.noise = "pac"',
    ),
    Need(
        what=(equals("privacy.pac-prior", "halves"),),
        needs=(equals("privacy.neighbouring", "add-remove"),),
        why="A random half contains a record or lacks it. It never replaces one.",
        instead='set privacy.pac-prior = "pair"',
    ),
    Need(
        what=(BY_CANDIDATE,),
        needs=(equals("privacy.sensitivity", "global"),),
        why="No sensitivity scales this noise.",
        instead='set privacy.noise = "isotropic"',
    ),
    # --- Keys of certain kinds of challenge
    Need(
        what=(one_of("challenge.kind", "record", "gradient"),),
        needs=(equals("challenge.label", -1),),
        why="This kind of target takes no label.",
        instead="set another challenge.kind",
    ),
    Need(
        what=(differs("challenge.kind", "gradient"),),
        needs=(equals("challenge.coordinate", -1),),
        why="Only a gradient target points along a parameter.",
        instead='set challenge.kind = "gradient"',
    ),
    Need(
        what=(differs("challenge.kind", "record"),),
        needs=(equals("challenge.replacement", -1),),
        why="Only a record of D is replaced by a record of the pool.",
        instead='set challenge.kind = "record"',
    ),
    # --- Trials in pairs, and in both worlds
    Need(
        what=(equals("trials.worlds", "d-only"),),
        needs=(equals("trials.pairing", "independent"), equals("trials.until-halfwidth", 0)),
        why="With one world, there is no interval to narrow and no trial to pair with.",
        instead='set trials.worlds = "both"',
    ),
    Need(
        what=(equals("trials.pairing", "common"),),
        needs=(even("trials.batch"),),
        why="Both trials of a pair must be in the same batch.",
        instead='set trials.pairing = "independent"',
    ),
    Need(
        what=(above("trials.until-halfwidth", 0),),
        needs=(even("trials.batch"),),
        why="Both trials of a pair must be in the same batch.",
        instead="set trials.until-halfwidth = 0",
    ),
    Need(
        what=(equals("trials.worlds", "both"),),
        needs=(even("trials.count"),),
        why="Half of the trials train on D and half on D'.",
        instead='set trials.worlds = "d-only"',
    ),
    # --- Measures of a model by clients
    Need(
        what=(above("federation.measures-share", 0),),
        needs=(above("federation.measures-epsilon", 0),),
        why="Clients hold records back only to measure a confusion matrix on them.",
        instead="set federation.measures-share = 0",
    ),
    Need(
        what=(above("federation.measures-epsilon", 0),),
        needs=(equals("privacy.unit", "record"), equals("model.task", "classification")),
        why="Each record is counted in one cell of a client's confusion matrix.",
        instead="set federation.measures-epsilon = 0",
    ),
    # --- Units of privacy
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
        why="A client sends one clipped update, and all its records are the target.",
        instead='set privacy.unit = "record"',
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
        why="The sampling of clients is simulated, with coins drawn from the seed.",
        instead="set federation.sampling-rate = 1.0",
    ),
    Need(
        what=(
            below("federation.sampling-rate", 1),
            equals("privacy.unit", "client"),
            trusts(lambda model: model.server_draws),
        ),
        needs=(equals("federation.tolerated-dropouts", 0), equals("federation.dropout-rate", 0)),
        why="The clients that join a round stay secret, but a missing client would be named.",
        instead='set federation.trust = "distributed"',
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
        why="The adversary reads the sum of several rounds from two models. All server steps must "
        "have one size.",
        instead='set federation.adversary-rounds = "every"',
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
        why="A client sends gradients, and one record is the target.",
        instead='set privacy.unit = "client"',
    ),
    Need(
        what=(above("training.local-batches", 0),),
        needs=(equals("training.local-epochs", 1),),
        why="The number of batches alone decides how long a client trains.",
        instead="set training.local-batches = 0",
    ),
    Need(
        what=(at_least("challenge.client", 0),),
        needs=(equals("challenge.record", -1),),
        why="A record that you choose decides the client that holds it.",
        instead="set challenge.client = -1",
    ),
    # --- Steps
    Need(
        what=(differs("training.optimizer", "sgd"),),
        needs=(equals("training.momentum", 0),),
        why='Only "sgd" has this momentum. The momentum of "adam" is training.beta1.',
        instead='set training.optimizer = "sgd"',
    ),
    Need(
        what=(equals("training.local-steps", 1), equals("privacy.unit", "record")),
        needs=(equals("training.local-learning-rate", 0),),
        why="No client takes steps on its own model.",
        instead="set training.local-steps above 1",
    ),
    Need(
        what=(equals("privacy.neighbouring", "replace"), below("training.sampling-rate", 1)),
        needs=(equals("privacy.sensitivity", "global"),),
        why="No single distance describes the sampled pair.",
        instead='set privacy.neighbouring = "add-remove"',
    ),
    # --- Local steps
    Need(
        what=(above("training.local-steps", 1),),
        needs=(trusts(lambda model: model.local_steps),),
        why="Each client must add the noise itself before its next local step.",
        instead="set training.local-steps = 1",
    ),
    Need(
        what=(above("training.local-steps", 1), below("training.sampling-rate", 1)),
        needs=(equals("privacy.neighbouring", "add-remove"),),
        why="A sum shows how often one record was drawn, but not which record of a pair.",
        instead='set privacy.neighbouring = "add-remove"',
    ),
    Need(
        what=(above("training.local-steps", 1),),
        needs=(equals("audit.bayesian-pairs", 0),),
        why="Gradients are compared at the model of the round, not at the models of local steps.",
        instead="set training.local-steps = 1",
    ),
    Need(
        what=(above("training.local-steps", 1),),
        needs=(equals("privacy.sensitivity", "global"),),
        why="Sensitivity is measured at the model of the round, not at the models of local steps.",
        instead="set training.local-steps = 1",
    ),
    Need(
        what=(above("training.local-steps", 1),),
        needs=(equals("audit.mode", "participant"),),
        why="After local steps, the noise alone does not determine the belief.",
        instead="set training.local-steps = 1",
    ),
    Need(
        what=(above("training.local-steps", 1),),
        needs=(equals("federation.colluding", 0), equals("federation.tolerated-dropouts", 0)),
        why="The accounting assumes that all clients answer and keep their noise to themselves.",
        instead="set training.local-steps = 1",
    ),
    # --- Noise with its own law, and noise that candidates shape
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
        why="The server adds this noise and computes its law from values that an oracle audit "
        "reads.",
        instead='set privacy.noise = "isotropic"',
    ),
    Need(
        what=(BY_CANDIDATE,),
        needs=(
            equals("training.clipping", True),
            equals("audit.bayesian-pairs", 0),
            equals("trials.worlds", "both"),
            equals("run.precision", "float32"),
        ),
        why="The server compares what each candidate would send.",
        instead='set privacy.noise = "isotropic"',
    ),
    Need(
        what=(BY_CANDIDATE,),
        needs=(equals("federation.colluding", 0),),
        why="The candidates are sums over all clients.",
        instead='set privacy.noise = "isotropic"',
    ),
    Need(
        what=(BY_CANDIDATE,),
        needs=(differs("challenge.kind", "gradient"), equals("challenge.copies", 1)),
        why="The candidates are sets of records.",
        instead='set privacy.noise = "isotropic"',
    ),
    # --- Integers of a public range
    Need(
        what=(trusts(lambda model: model.summed_securely),),
        needs=(equals("training.clipping", True),),
        why="Clients send integers of a public range, and without clipping nothing bounds their "
        "sums.",
        instead='set federation.trust = "local"',
    ),
    Need(
        what=(trusts(lambda model: model.summed_securely),),
        needs=(equals("privacy.sensitivity", "global"),),
        why="The range of the integers that clients send must not depend on the data.",
        instead='set federation.trust = "local"',
    ),
    Need(
        what=(above("audit.bayesian-pairs", 0),),
        needs=(equals("federation.tolerated-dropouts", 0),),
        why="The Bayesian accountant compares the gradients of all clients in every round.",
        instead="set audit.bayesian-pairs = 0",
    ),
    # --- Unbounded sums, and targets that no noise meets
    Need(
        what=(BY_CANDIDATE,),
        needs=(equals("privacy.stop-at", 0),),
        why="This noise is not differential privacy: epsilon is infinite from the first round on. "
        "The budget is privacy.mutual-information.",
        instead='set privacy.noise = "isotropic"',
    ),
    Need(
        what=(equals("training.clipping", False),),
        needs=(
            equals("privacy.rho-beta", 0),
            equals("privacy.rho-alpha", 0),
            equals("privacy.max-risk", 0),
            equals("privacy.epsilon", 0),
            equals("privacy.mutual-information", 0),
        ),
        why="Nothing bounds what one record can change, so no noise meets a target. Give "
        "privacy.noise-multiplier.",
        instead="set training.clipping = true",
    ),
    Need(
        what=(equals("training.clipping", False),),
        needs=(equals("privacy.stop-at", 0),),
        why="Nothing bounds what one record can change, so epsilon is infinite from the first "
        "round on.",
        instead="set training.clipping = true",
    ),
    *OF_CHALLENGES,
)
"""The rows in the order of the checks. A message names the first row that is not met."""
