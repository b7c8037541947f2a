"""What every room needs: errors and files, randomness, devices, memory."""
