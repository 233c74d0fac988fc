"""What node 0 knows of the others: who has come, whether all may start, how each has ended, and who is let in."""
