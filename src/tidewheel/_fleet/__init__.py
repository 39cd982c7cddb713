"""Several nodes run one job: membership, routing, and the hand-over of shards."""
