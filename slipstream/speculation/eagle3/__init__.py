"""EAGLE-3: a drafter that reads the target's own features."""
