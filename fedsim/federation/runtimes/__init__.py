"""The transports of messages: in process, in Flower's simulation, or between machines."""
