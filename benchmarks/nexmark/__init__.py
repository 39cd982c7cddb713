"""Nexmark: an auction site's persons, auctions and bids, and queries over them."""
