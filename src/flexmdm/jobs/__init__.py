"""Jobs: a file of lines in, a line of answers for each out, however often it is interrupted."""
