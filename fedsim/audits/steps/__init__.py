"""Steps of DP-SGD: one watcher of Opacus, one type of a step, and the checks of all steps."""
