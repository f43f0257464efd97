"""The gate: a change is kept only where the machine code is better."""
