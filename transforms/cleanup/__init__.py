"""Cleanup after other passes: copies, dead code, empty blocks."""
