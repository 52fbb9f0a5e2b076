"""Risk over context: the same last question after 0, 5, 20 and 60 turns, benign and spiralling."""
