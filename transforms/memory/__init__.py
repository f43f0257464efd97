"""Memory instructions: dead stores, vector loads, read-only loads."""
