"""Lower bounds on epsilon from trials and canaries, and the number of trials that they need."""
