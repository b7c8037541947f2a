"""The rows of the table of refused combinations about what is challenged, and with whose records.

Canaries, crafted challenges and groups, a pair that is given; clients' own records, and a training.
"""

from fedsim.config.needs import Need, above, at_least, below, differs, equals, one_of
from fedsim.config.refused_kinds import GAUSSIAN, trusts

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
        why="and canaries are not supported with it",
        instead="canaries.count = 0",
    ),
    Need(
        what=(trusts(lambda model: model.summed_securely),),
        needs=(equals("canaries.count", 0),),
        why="whose integers have no room for canaries",
        instead='federation.trust = "local" or "central"',
    ),
    Need(
        what=(equals("federation.vantage", "released-model"),),
        needs=(equals("canaries.count", 0),),
        why="whose beliefs replay the training without canaries",
        instead='federation.vantage = "participant"',
    ),
    Need(
        what=(equals("audit.vantages", "all"),),
        needs=(equals("canaries.count", 0),),
        why="and the beliefs about the released model replay the training without canaries",
        instead='audit.vantages = "configured"',
    ),
    Need(
        what=(equals("trials.pairing", "common"),),
        needs=(equals("canaries.count", 0),),
        why="where two trials share what is random and canaries have coins for each",
        instead='trials.pairing = "independent"',
    ),
    Need(
        what=(above("canaries.count", 0), equals("privacy.unit", "client")),
        needs=(one_of("canaries.kind", "gradient", "dirac"),),
        why="where a canary stands for a client",
        instead='privacy.unit = "record"',
    ),
    Need(
        what=(above("canaries.count", 0), equals("privacy.unit", "client")),
        needs=(equals("canaries.known-data", False),),
        why="where clients send updates of their own and not sums over records",
        instead='privacy.unit = "record"',
    ),
    Need(
        what=(equals("canaries.kind", "text"),),
        needs=(equals("model.task", "next-token"),),
        why="where a canary is a text of random tokens",
        instead='canaries.kind = "gradient"',
    ),
    Need(
        what=(equals("canaries.score", "loss"),),
        needs=(
            one_of("canaries.kind", "mislabelled", "text"),
            equals("canaries.known-data", False),
        ),
        why="which are the losses of records that canaries are",
        instead='canaries.score = "sums"',
    ),
    # --- Random numbers in common
    Need(
        what=(equals("trials.pairing", "common"),),
        needs=(equals("privacy.noise-source", "seed"), GAUSSIAN),
        why="where two trials draw the same noise from the seed",
        instead='trials.pairing = "independent"',
    ),
    # --- Crafted challenges and groups
    Need(
        what=(equals("privacy.unit", "client"),),
        needs=(equals("challenge.kind", "record"), equals("challenge.copies", 1)),
        why="where all data of a client are the target",
        instead='privacy.unit = "record"',
    ),
    Need(
        what=(differs("model.weights-sha256", ""),),
        needs=(differs("model.weights", "glorot"),),
        why="which is of a file",
        instead="the path of that file as model.weights",
    ),
    Need(
        what=(equals("model.initialisation", "worst-case"),),
        needs=(equals("privacy.unit", "record"),),
        why="which is fitted to all records but that of the challenge",
        instead='model.initialisation = "random"',
    ),
    Need(
        what=(equals("model.initialisation", "worst-case"), equals("challenge.kind", "record")),
        needs=(at_least("challenge.record", 0),),
        why="which is fitted to all records but that of the challenge, and that is not known yet",
        instead='another challenge.kind, or model.initialisation = "random"',
    ),
    Need(
        what=(equals("challenge.kind", "gradient"),),
        needs=(equals("training.clipping", True),),
        why="a vector of the clipping norm",
        instead="another challenge.kind",
    ),
    Need(
        what=(above("audit.bayesian-pairs", 0),),
        needs=(equals("challenge.kind", "record"), equals("challenge.copies", 1)),
        why="whose guarantee is for the distribution of the records, which what was put into D for "
        "the challenge is not from",
        instead="audit.bayesian-pairs = 0",
    ),
    Need(
        what=(below("training.sampling-rate", 1),),
        needs=(equals("challenge.copies", 1),),
        why="where copies are sampled one by one, and no adversary here counts them",
        instead="training.sampling-rate = 1.0",
    ),
    Need(
        what=(equals("privacy.sensitivity", "local"),),
        needs=(equals("challenge.copies", 1),),
        why="which would hide the group as well as one of them",
        instead='privacy.sensitivity = "global"',
    ),
    # --- Rounded gradients
    Need(
        what=(equals("audit.mode", "participant"),),
        needs=(equals("run.precision", "float32"),),
        why="whose belief compares sums that it computed in full precision with what others "
        "rounded",
        instead='audit.mode = "oracle"',
    ),
    Need(
        what=(equals("privacy.sensitivity", "local"),),
        needs=(equals("run.precision", "float32"),),
        why="and the sensitivity of rounded gradients is not the one that is measured",
        instead='privacy.sensitivity = "global"',
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
        why="the records that each client has, and that nobody else reads",
        instead="name a data set that everybody has",
    ),
    Need(
        what=(differs("data.public-schema", ""),),
        needs=(equals("data.name", "own"),),
        why="which says what clients' own records have in common",
        instead='data.public-schema = ""',
    ),
    # --- Texts whose next token is learnt
    Need(
        what=(equals("model.task", "next-token"),),
        needs=(
            equals("model.name", "hugging-face"),
            one_of("data.name", "own", "texts"),
            one_of("challenge.kind", "record", "gradient"),
            equals("privacy.unit", "record"),
            one_of("canaries.kind", "gradient", "dirac", "text"),
        ),
        why="whose records are texts without labels",
        instead='model.task = "classification"',
    ),
    Need(
        what=(equals("data.name", "texts"),),
        needs=(equals("model.task", "next-token"),),
        why="whose texts have no labels",
        instead='data.name = "own" with a schema that names classes',
    ),
    # --- Numbers that are predicted
    *(
        Need(
            what=(equals("model.task", task),),
            needs=(
                one_of("challenge.kind", "record", "gradient"),
                equals("data.classes", ""),
                equals("model.class-priors", ""),
            ),
            why="whose labels are numbers",
            instead='model.task = "classification"',
        )
        for task in ("regression", "huber")
    ),
    Need(
        what=(differs("data.target", ""),),
        needs=(one_of("model.task", "regression", "huber"),),
        why="which predict a number",
        instead='data.target = ""',
    ),
    Need(
        what=(differs("model.class-priors", ""),),
        needs=(equals("model.task", "classification"),),
        why="whose records have classes",
        instead='model.class-priors = ""',
    ),
    # --- A training of a model that is kept
    Need(
        what=(equals("run.job", "training"),),
        needs=(
            equals("training.clipping", True),
            equals("privacy.sensitivity", "global"),
            GAUSSIAN,
            equals("federation.colluding", 0),
        ),
        why="whose guarantee is for every record and every client",
        instead="rehearse it (fedsim rehearse)",
    ),
    Need(
        what=(equals("run.job", "training"),),
        needs=(differs("model.initialisation", "worst-case"),),
        why="whose first model would be fitted to the records without noise",
        instead="rehearse it (fedsim rehearse)",
    ),
    # --- A pair that is given
    Need(
        what=(equals("privacy.neighbouring", "add-remove"),),
        needs=(equals("challenge.replacement", -1),),
        why="which replaces nothing",
        instead='privacy.neighbouring = "replace"',
    ),
    Need(
        what=(
            equals("privacy.neighbouring", "replace"),
            equals("challenge.kind", "record"),
            at_least("challenge.record", 0),
        ),
        needs=(at_least("challenge.replacement", 0),),
        why="and the two go together under replace",
        instead="neither, to choose them by dissimilarity",
    ),
    Need(
        what=(
            equals("privacy.neighbouring", "replace"),
            equals("challenge.kind", "record"),
            at_least("challenge.replacement", 0),
        ),
        needs=(at_least("challenge.record", 0),),
        why="and the two go together under replace",
        instead="neither, to choose them by dissimilarity",
    ),
)
"""In the order in which they are checked, after those of `refused`."""
