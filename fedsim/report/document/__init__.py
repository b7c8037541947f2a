"""What pages are made of: worded numbers, blocks, pictures and a frame."""
