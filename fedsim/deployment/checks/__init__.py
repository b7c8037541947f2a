"""What is wrong with a deployment: what lies in a folder, what listens, what answers."""
