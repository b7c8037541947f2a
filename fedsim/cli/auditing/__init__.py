"""Commands that audit transcripts, Flower apps, training functions, and trainings with canaries."""
