"""The messages between server and clients, and the checks on their arrival."""
