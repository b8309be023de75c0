"""Tables in and out: frames and files, the loop that randomises their rows, and the description of a release."""
