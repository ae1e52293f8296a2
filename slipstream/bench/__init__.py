"""Load generator and sweeps for any OpenAI-compatible server."""
