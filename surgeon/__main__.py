"""`python -m surgeon` is `surgeon`."""

from surgeon.cli.app import main

if __name__ == "__main__":
    main()
