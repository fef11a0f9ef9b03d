"""Administration: topics, groups, their lag and offsets, single messages."""
