"""From the ends of processes to what they died of: pure functions, each a list of named rules of which the first that matches decides."""
