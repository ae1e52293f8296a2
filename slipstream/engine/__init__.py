"""Requests become steps: request, scheduler, step batch, step loop, token emission."""
