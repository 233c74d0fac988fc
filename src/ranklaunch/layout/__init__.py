"""How a model is spread over ranks, for people: on which node each is, which layers it has, and who talks to whom."""
