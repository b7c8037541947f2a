"""The adversaries, each where it sits."""
