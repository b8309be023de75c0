"""``python -m dpframe``."""

from dpframe.cli.main import main

if __name__ == "__main__":
    main()
