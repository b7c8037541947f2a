"""Progress of a run, from one event stream: bar, live page and experiment trackers."""
