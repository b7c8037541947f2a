"""The parts of a page: worded numbers, blocks, pictures and a frame."""
