"""The terms that every page explains at its end."""

TERMS = (
    (
        "ε, δ",
        "Strength of differential privacy: one record makes any outcome at most e^ε times as "
        "likely, plus δ.",
    ),
    ("ε′", "An ε computed from what the adversary achieved."),
    (
        "ρβ",
        "Bound on belief: from even odds, the adversary's belief stays below it, except in a "
        "stated share of trainings.",
    ),
    ("ρα", "Bound on the advantage."),
    ("δ′", "Measured share of trials with the record in which the belief exceeded ρβ."),
    ("advantage", "Twice the share of right answers, minus one: 0 is a coin, 1 always right."),
    ("belief", "How sure the adversary is, after all it saw, that the target was used."),
    ("D, D′", "The data with the target, and without it or with another record in its place."),
    ("μ", "What the target changes in everything released, in standard deviations of the noise."),
    (
        "noise multiplier",
        "Standard deviation of the noise, divided by the largest change that one record can cause.",
    ),
    ("local sensitivity, LS", "How much the target changes the sum of a round."),
    ("majority class", "Most frequent class; always naming it reaches this accuracy."),
    ("recall", "Share of a class's records that the model recognises."),
    ("balanced accuracy", "Mean of the recalls of all classes."),
    ("AUC", "How often a record of a class scores above one of another; 0.5 is guessing."),
    ("canary", "Test record or gradient; a coin decides whether a training uses it."),
)
"""Symbols and words that not every reader knows, each with its meaning."""
