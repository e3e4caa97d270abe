"""How records travel: buffers, channels with credit, gates, routes, and what rescaling does to channels."""
