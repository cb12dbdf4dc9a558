"""What the online learners share: the classifier they derive from, and the compiled parts of a step."""
