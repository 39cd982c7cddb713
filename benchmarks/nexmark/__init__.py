"""Nexmark: the persons, auctions and bids of an auction site, and queries over them."""
