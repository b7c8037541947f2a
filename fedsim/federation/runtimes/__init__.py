"""How messages travel: in process, or by Flower's simulation."""
