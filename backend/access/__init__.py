"""What the access control of the API and of the live runtime share: a limit on guesses, and signed sessions."""
