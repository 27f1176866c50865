"""What one does with runs: judge a design (`check`), put error bars on it (`intervals`), and compare it
with queueing theory (`theory`)."""
