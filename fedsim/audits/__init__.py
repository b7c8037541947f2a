"""Audits of a training: of a run, a recording, an app, a loop, or a running federation."""
