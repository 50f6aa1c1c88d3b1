"""What each command does, without a terminal."""
