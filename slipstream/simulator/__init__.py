"""What speculation would bring on a machine described by a few numbers; no clock is read."""
