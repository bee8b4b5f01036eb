"""Stand-ins for TensorRT: its names, its package, its prefix."""
