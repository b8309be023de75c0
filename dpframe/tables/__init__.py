"""Tables in and out: frames and files, the loop that randomises their rows, and what a release says of itself."""
