"""Access control shared by the API and the live runtime: a limit on token guesses, and signed login sessions."""
