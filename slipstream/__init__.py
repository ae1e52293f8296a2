"""Slipstream: a serving engine in which speculative decoding can be left on."""

__version__ = "0.1.0"
