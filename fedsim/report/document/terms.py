"""The terms that every page explains at its end."""

TERMS = (
    (
        "ε (epsilon)",
        "The strength of differential privacy. One record, or one client's data if that is "
        "the unit, can make any outcome more likely, but at most e^ε times, plus δ. A smaller "
        "ε protects more.",
    ),
    (
        "δ (delta)",
        "A small extra: the probability of an outcome may exceed the limit set by ε, by up to δ.",
    ),
    (
        "ε′",
        "An ε computed from what the adversary achieved. It is compared with the ε of theory.",
    ),
    (
        "ρβ",
        "The bound on belief. From even odds, the adversary's belief that one person's record "
        "was used stays below it, except in a small, stated share of trainings.",
    ),
    (
        "ρα",
        "The bound on the advantage: twice the largest share of right answers, minus one.",
    ),
    (
        "δ′",
        "The measured share of trials with the record in which the adversary's belief exceeded ρβ.",
    ),
    (
        "advantage",
        "Twice the share of right answers, minus one. 0: no better than a coin. 1: always right.",
    ),
    (
        "belief",
        "How sure the adversary is, after all it saw, that the target record was used.",
    ),
    (
        "D, D′",
        "D is the training data with the target record. D′ is the same data without it, or "
        "with another record in its place.",
    ),
    (
        "μ",
        "The change that the target causes in everything released, in standard deviations of "
        "the noise.",
    ),
    (
        "noise multiplier",
        "The standard deviation of the noise, divided by the largest change of a sum that one "
        "person can cause.",
    ),
    (
        "local sensitivity, LS",
        "How much the target changes the sum of a round. Noise is usually scaled to the "
        "largest change that any record could cause.",
    ),
    (
        "vantage point",
        "What the adversary sees: the server's messages, a participant's, or the released "
        "model alone.",
    ),
    (
        "majority class",
        "The most frequent class. A model that always names it reaches this accuracy without "
        "learning anything.",
    ),
    (
        "recall",
        "The share of a class's records that the model recognises.",
    ),
    (
        "balanced accuracy",
        "The mean of the recalls of all classes: each class counts the same, however rare it is.",
    ),
    (
        "AUC",
        "How often the model scores a record of a class above a record of another class. 0.5 "
        "is guessing, 1 is perfect.",
    ),
    (
        "canary",
        "A test record or gradient. A coin decides whether a training uses it, and the audit "
        "looks for it afterwards.",
    ),
)
"""Symbols and words that not every reader knows, each with its meaning."""
