"""Where parallelism over nodes stops paying: a model of headlane::mpi, and its check (docs/site/nodes.md)."""
