"""What tools/package_table.py runs, and how its tests tell their outcome."""
