"""Progress of a run, from one event stream: bar and experiment trackers."""
