"""What judges what ranklaunch makes: schemas and rules of others, and Helm."""
