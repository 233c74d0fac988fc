"""Platforms (which job is this, and who am I in it?) and launchers (how are its ranks started?): one module each."""
