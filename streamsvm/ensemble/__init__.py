"""The ensemble of kernel and linear members that needs no settings."""
