"""A small project that runs on the code of this tree and on that of an earlier commit: only what both have."""
