ranklaunch: its supervisor has not taken SIGTERM for 10 s (a mount that does not answer, for its logs?); its ranks are told, and have 3 s
