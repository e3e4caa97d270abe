"""The web pages of Barrierscope."""
