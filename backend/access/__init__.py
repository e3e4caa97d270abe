"""What the gates of the API and of the live runtime share: damping of guesses, and signed sessions."""
