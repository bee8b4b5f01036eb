"""Python plugins for the native module, and the places of their code."""
