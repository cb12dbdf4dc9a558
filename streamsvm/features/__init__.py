"""Feature encoding: dicts and tables with named features become scaled numeric rows."""
