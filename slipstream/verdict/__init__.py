"""Does speculation pay, here, at this load, and what should be set?"""
