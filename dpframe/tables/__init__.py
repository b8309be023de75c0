"""Tables in and out: frames, files and streams."""
