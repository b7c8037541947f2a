"""What somebody can conclude of a training: from a run, a recording, an app, a loop, live."""
