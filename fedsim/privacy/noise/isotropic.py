"""Gaussian noise of the same size in all directions, as in DP-SGD."""

from fedsim.privacy.noise.mechanism import Noised, NoiseMechanism, Summed


class Isotropic(NoiseMechanism):
    """Independent normal noise in every round and coordinate."""

    title = "isotropic noise"

    def add(self, summed: Summed) -> Noised:
        """Return the sum with the server's noise, in place; unchanged where clients add noise."""
        total = summed.total
        if not self.trials.server_draws:
            return Noised(total)
        noise = self.trials.normals(summed.round, total.shape[1])
        noise *= summed.noise_stds[:, None]
        total += noise
        return Noised(total, noise)
