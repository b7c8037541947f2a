"""The variants of the app: what each does about differential privacy."""

VARIANTS = {
    "none": "no differential privacy",
    "uniform": "central noise, every client counts alike",
    "weighted": "central noise for a plain average, but clients count by their examples",
    "accountant-kept": "central noise and one accountant for the whole run",
    "accountant-and-local": "central noise and an accountant; clients add a little noise as well",
    "accountant-rebuilt": "central noise and a new accountant for every round",
    "noise-too-small": "central noise, of which a subclass adds only a tenth",
    "noise-but-first": "central noise, of which a subclass adds none at first, and more later",
    "noise-repeated": "central noise, of which a subclass draws the same in every round",
    "noise-renamed": "central noise, drawn as Flower does by a subclass",
    "noise-none-at-first": "central noise, none of it in the first round",
    "noise-lowered": "central noise, of which a subclass configures a tenth in every round",
    "private-at-last": "plain averaging in the first round, and central noise from then on",
    "sent-without-noise": "central noise on what is returned; clients are sent the mean without it",
    "sent-moved": "central noise, and a step of the server's own before the model is sent",
    "own-start": "central noise, and rounds that a subclass runs itself",
    "own-start-quiet": "rounds that a subclass runs itself, with a tenth of the noise",
    "seeded": "central noise from a generator whose seed is in the code",
    "too-many-clients": "noise divided by ten times the clients that there are",
    "adaptive": "Flower's server-side adaptive clipping",
    "client-fixed": "central noise, clients clip",
    "client-unclipped": "central noise, clients should clip and do not",
    "server-adam": "central noise on what FedAdam makes of the average",
    "own-clipping": "a strategy of one's own clips and adds noise, as it should",
    "own-quiet": "a strategy of one's own adds a tenth of its noise",
    "own-same-seed": "a strategy of one's own draws the same noise in every round",
    "own-adam": "a strategy of one's own takes Adam's step by a noisy mean",
    "local-dp": "LocalDpMod",
}


def known(variant: object) -> str:
    """Return the name of a variant. Raises ValueError if there is none of this name."""
    if variant not in VARIANTS:
        raise ValueError(f"variant is {variant!r}; choose one of {', '.join(VARIANTS)}")
    return str(variant)
