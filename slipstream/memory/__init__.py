"""The K/V page pool and the prefix cache over it."""
