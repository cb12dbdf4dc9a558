"""Labels that come later: events that wait for theirs, and what is learned when these come."""
