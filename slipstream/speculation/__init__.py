"""Token trees: drafters that propose them, the acceptance walk that reads them."""
