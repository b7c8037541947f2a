"""What the table of refused combinations says of trust models and noise: by what they are like."""

from collections.abc import Callable

from fedsim.config.needs import Setting, one_of
from fedsim.privacy.noise import Noise
from fedsim.privacy.noise.mechanism import NoiseMechanism
from fedsim.privacy.trust import Trust
from fedsim.privacy.trust.model import TrustModel


def trusts(said: Callable[[TrustModel], bool]) -> Setting:
    """Return that trust is one of the models of which something is said."""
    return one_of("federation.trust", *(trust.value for trust in Trust if said(trust.model)))


def noises(said: Callable[[type[NoiseMechanism]], bool]) -> Setting:
    """Return that noise is one of the mechanisms of which something is said."""
    return one_of("privacy.noise", *(noise.value for noise in Noise if said(noise.mechanism)))


BY_CANDIDATE = noises(lambda noise: noise.by_candidate)
OF_NO_CANDIDATES = noises(lambda noise: not noise.by_candidate)
OF_OWN_LAW = noises(lambda noise: noise.own_law)
GAUSSIAN = noises(lambda noise: not noise.own_law)

UNBOUNDED = "nothing bounds what one record can change"
"""What follows where gradients are not clipped."""
