"""Abadi et al., Deep learning with differential privacy; a blog on composition."""
