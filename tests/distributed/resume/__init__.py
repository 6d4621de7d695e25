"""A run that is stopped, killed or restarted resumes at the next sample, on any number of ranks."""
