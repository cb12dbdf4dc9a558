"""The convex polytope machine: SGD on the faces of a polytope a class, with running entropy assignment."""
