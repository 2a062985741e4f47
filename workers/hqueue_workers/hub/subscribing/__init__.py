"""Subscriptions that are attached to a hub's topics, and what they are sent."""
