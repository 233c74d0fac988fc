"""What a running job answers to whoever asks from inside one of its containers, and asks of its ranks."""
