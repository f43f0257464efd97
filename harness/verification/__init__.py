"""Whether two PTX files compute the same: inputs made from the PTX, runs on the emulator, comparison."""
