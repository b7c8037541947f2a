"""The adversaries, by their place in the federation.

A curious client plays `participant` in every round, and an observer of the released model alone
`released_model` after the last. A `Seat` observes at the server (`at_server.SEATS`): the curious
server, or the oracle audit, which receives the noise.
"""
