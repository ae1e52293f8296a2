"""How much to speculate, decided every step from measured cost and measured acceptance."""
