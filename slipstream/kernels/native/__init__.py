"""The arithmetic in C++, compiled once per instruction set and chosen at run time."""
