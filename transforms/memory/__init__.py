"""Memory instructions: dead stores, vector loads, read-only loads, loads that are issued earlier."""
