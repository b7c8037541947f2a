"""What each kind of measurement shows, from arrays and a configuration: nothing of a whole run."""
