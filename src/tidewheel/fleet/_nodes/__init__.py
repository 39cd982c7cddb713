"""Fleets: several nodes run one job, with membership, routing, and the hand-over of shards."""
