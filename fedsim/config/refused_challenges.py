"""The rows of the table of refused combinations that concern challenges, records and trainings."""

from fedsim.config.needs import (
    GAUSSIAN,
    Need,
    above,
    at_least,
    below,
    differs,
    equals,
    one_of,
    trusts,
)

OF_CHALLENGES = (
    # --- Canaries
    Need(
        what=(above("canaries.count", 0),),
        needs=(
            equals("training.clipping", True),
            equals("training.sampling-rate", 1.0),
            equals("training.local-steps", 1),
            GAUSSIAN,
            equals("privacy.sensitivity", "global"),
        ),
        why="Canaries are not supported with this setting.",
        instead="set canaries.count = 0",
    ),
    Need(
        what=(trusts(lambda model: model.summed_securely),),
        needs=(equals("canaries.count", 0),),
        why="The integers that clients send have no room for canaries.",
        instead='set federation.trust = "local" or "central"',
    ),
    Need(
        what=(equals("federation.vantage", "released-model"),),
        needs=(equals("canaries.count", 0),),
        why="Beliefs about the released model replay the training without canaries.",
        instead='set federation.vantage = "participant"',
    ),
    Need(
        what=(equals("audit.vantages", "all"),),
        needs=(equals("canaries.count", 0),),
        why="Beliefs about the released model replay the training without canaries.",
        instead='set audit.vantages = "configured"',
    ),
    Need(
        what=(equals("trials.pairing", "common"),),
        needs=(equals("canaries.count", 0),),
        why="The trials of a pair share their random numbers, but each trial draws its own coins "
        "for canaries.",
        instead='set trials.pairing = "independent"',
    ),
    Need(
        what=(above("canaries.count", 0), equals("privacy.unit", "client")),
        needs=(one_of("canaries.kind", "gradient", "dirac"),),
        why="With this unit, a canary stands for a client.",
        instead='set privacy.unit = "record"',
    ),
    Need(
        what=(above("canaries.count", 0), equals("privacy.unit", "client")),
        needs=(equals("canaries.known-data", False),),
        why="Clients send updates, not sums over records.",
        instead='set privacy.unit = "record"',
    ),
    Need(
        what=(equals("canaries.kind", "text"),),
        needs=(equals("model.task", "next-token"),),
        why="Such a canary is a text of random tokens.",
        instead='set canaries.kind = "gradient"',
    ),
    Need(
        what=(equals("canaries.score", "loss"),),
        needs=(
            one_of("canaries.kind", "mislabelled", "text"),
            equals("canaries.known-data", False),
        ),
        why="This score is the loss of a canary, so each canary must be a record.",
        instead='set canaries.score = "sums"',
    ),
    # --- Shared random numbers
    Need(
        what=(equals("trials.pairing", "common"),),
        needs=(equals("privacy.noise-source", "seed"), GAUSSIAN),
        why="The trials of a pair draw the same noise from the seed.",
        instead='set trials.pairing = "independent"',
    ),
    # --- Crafted challenges and groups
    Need(
        what=(equals("privacy.unit", "client"),),
        needs=(equals("challenge.kind", "record"), equals("challenge.copies", 1)),
        why="All records of a client are the target.",
        instead='set privacy.unit = "record"',
    ),
    Need(
        what=(differs("model.weights-sha256", ""),),
        needs=(differs("model.weights", "glorot"),),
        why="The hash is the hash of a file.",
        instead="set model.weights to the path of that file",
    ),
    Need(
        what=(equals("model.initialisation", "worst-case"),),
        needs=(equals("privacy.unit", "record"),),
        why="This initial model is trained on all records except the target record.",
        instead='set model.initialisation = "random"',
    ),
    Need(
        what=(equals("model.initialisation", "worst-case"), equals("challenge.kind", "record")),
        needs=(at_least("challenge.record", 0),),
        why="This initial model is trained on all records except the target record, which must be "
        "known first.",
        instead='set another challenge.kind or model.initialisation = "random"',
    ),
    Need(
        what=(equals("challenge.kind", "gradient"),),
        needs=(equals("training.clipping", True),),
        why="A gradient target is a vector of the clipping norm.",
        instead="set another challenge.kind",
    ),
    Need(
        what=(above("audit.bayesian-pairs", 0),),
        needs=(equals("challenge.kind", "record"), equals("challenge.copies", 1)),
        why="The Bayesian guarantee is for the distribution of the records. A crafted or copied "
        "target is not drawn from it.",
        instead="set audit.bayesian-pairs = 0",
    ),
    Need(
        what=(below("training.sampling-rate", 1),),
        needs=(equals("challenge.copies", 1),),
        why="Copies are sampled one by one, and no adversary of fedsim counts them.",
        instead="set training.sampling-rate = 1.0",
    ),
    Need(
        what=(equals("privacy.sensitivity", "local"),),
        needs=(equals("challenge.copies", 1),),
        why="Local sensitivity would hide the whole group as well as one record.",
        instead='set privacy.sensitivity = "global"',
    ),
    # --- Rounded gradients
    Need(
        what=(equals("audit.mode", "participant"),),
        needs=(equals("run.precision", "float32"),),
        why="The participant would compare sums in full precision with rounded sums.",
        instead='set audit.mode = "oracle"',
    ),
    Need(
        what=(equals("privacy.sensitivity", "local"),),
        needs=(equals("run.precision", "float32"),),
        why="The sensitivity of rounded gradients differs from the measured sensitivity.",
        instead='set privacy.sensitivity = "global"',
    ),
    # --- Clients' own records
    Need(
        what=(equals("data.name", "own"),),
        needs=(
            differs("data.public-schema", ""),
            differs("run.job", "experiment"),
            equals("federation.partition", "iid"),
            equals("data.classes", ""),
        ),
        why="Each client has its own records, and no other party reads them.",
        instead="set data.name to a data set that all parties have",
    ),
    Need(
        what=(differs("data.public-schema", ""),),
        needs=(equals("data.name", "own"),),
        why="A schema describes the clients' own records.",
        instead='set data.public-schema = ""',
    ),
    # --- Texts for next-token training
    Need(
        what=(equals("model.task", "next-token"),),
        needs=(
            equals("model.name", "hugging-face"),
            one_of("data.name", "own", "texts"),
            one_of("challenge.kind", "record", "gradient"),
            equals("privacy.unit", "record"),
            one_of("canaries.kind", "gradient", "dirac", "text"),
        ),
        why="The records are texts without labels.",
        instead='set model.task = "classification"',
    ),
    Need(
        what=(equals("data.name", "texts"),),
        needs=(equals("model.task", "next-token"),),
        why="These texts have no labels.",
        instead='set data.name = "own" with a schema that names classes',
    ),
    # --- Predicted numbers
    *(
        Need(
            what=(equals("model.task", task),),
            needs=(
                one_of("challenge.kind", "record", "gradient"),
                equals("data.classes", ""),
                equals("model.class-priors", ""),
            ),
            why="The labels are numbers.",
            instead='set model.task = "classification"',
        )
        for task in ("regression", "huber")
    ),
    Need(
        what=(differs("data.target", ""),),
        needs=(one_of("model.task", "regression", "huber"),),
        why="A range of labels is for tasks that predict a number.",
        instead='set data.target = ""',
    ),
    Need(
        what=(differs("model.class-priors", ""),),
        needs=(equals("model.task", "classification"),),
        why="Class priors are for records with classes.",
        instead='set model.class-priors = ""',
    ),
    # --- Trainings without an adversary
    Need(
        what=(equals("run.job", "training"),),
        needs=(
            equals("training.clipping", True),
            equals("privacy.sensitivity", "global"),
            GAUSSIAN,
            equals("federation.colluding", 0),
        ),
        why="The guarantee of a training covers every record and every client.",
        instead="rehearse the training (fedsim rehearse)",
    ),
    Need(
        what=(equals("run.job", "training"),),
        needs=(differs("model.initialisation", "worst-case"),),
        why="The initial model would be trained on the records without noise.",
        instead="rehearse the training (fedsim rehearse)",
    ),
    # --- A chosen pair
    Need(
        what=(equals("privacy.neighbouring", "add-remove"),),
        needs=(equals("challenge.replacement", -1),),
        why="With this neighbouring relation, no record is replaced.",
        instead='set privacy.neighbouring = "replace"',
    ),
    Need(
        what=(
            equals("privacy.neighbouring", "replace"),
            equals("challenge.kind", "record"),
            at_least("challenge.record", 0),
        ),
        needs=(at_least("challenge.replacement", 0),),
        why='With "replace", choose both the target and its replacement, or neither.',
        instead="leave both at -1, to choose them by dissimilarity",
    ),
    Need(
        what=(
            equals("privacy.neighbouring", "replace"),
            equals("challenge.kind", "record"),
            at_least("challenge.replacement", 0),
        ),
        needs=(at_least("challenge.record", 0),),
        why='With "replace", choose both the target and its replacement, or neither.',
        instead="leave both at -1, to choose them by dissimilarity",
    ),
)
"""The rows in the order of the checks, which follow the rows in `refused`."""
