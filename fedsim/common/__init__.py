"""Parts that every package needs: files, randomness, devices, memory."""
