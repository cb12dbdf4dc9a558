"""HTTP server of a run for dashboard and metrics, robust against hostile or slow clients."""
