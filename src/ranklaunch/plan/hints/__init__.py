"""What a user may have meant: a misspelt variable, options behind the program, templates that nothing reads."""
