"""Control of a running job from inside one of its containers: status, save, stacks."""
