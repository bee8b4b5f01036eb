"""The parts of `opwright check`."""
