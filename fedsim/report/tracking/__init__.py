"""Where people look at runs while they run: one event stream, and those who follow it."""
