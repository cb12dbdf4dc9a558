"""Windows of a stream, re-solved by the batch solvers beside the running learner."""
