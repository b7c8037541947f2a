"""The adversaries, each where it sits.

- The participant, a curious client: `participant`, functions that its node calls in every round. An
  auditor's node, which sends nothing, calls the same.
- The server, honest but curious: `at_server.CuriousServer`, a `Seat`.
- Whoever has the released model alone: `released_model`, functions that the participant's node
  calls after the last round.
- The oracle audit, which is handed the noise: `at_server.Oracle`, a `Seat`; it computes with
  `disclosed_noise`.

A `Seat` (`seat`) looks at every round from the server; `at_server.SEATS` has them by `audit.mode`.
"""
