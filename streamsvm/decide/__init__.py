"""What to do about an event, by the probabilities of its classes alone: no learner is known here."""
