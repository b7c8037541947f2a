"""Commands that audit what others run: transcripts, Flower apps, a training of canaries."""
