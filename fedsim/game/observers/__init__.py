"""The adversaries, by their place in the federation.

- The participant, a curious client: `participant`, functions that its node calls in every round. An
  auditor's node, which sends nothing, calls the same functions.
- The server, honest but curious: `at_server.CuriousServer`, a `Seat`.
- An observer of the released model alone: `released_model`, functions that the participant's node
  calls after the last round.
- The oracle audit, which receives the noise: `at_server.Oracle`, a `Seat`; it computes with
  `disclosed_noise`.

A `Seat` (`seat`) observes every round at the server; `at_server.SEATS` has them by `audit.mode`.
"""
