"""What results point to: one cause of many failures, how operators are computed, what to make faster next."""
