"""Speed and memory: the hot paths, the consumers side by side, what cached messages cost."""
