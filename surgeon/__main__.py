"""`python -m surgeon` is `surgeon`."""

from surgeon.cli.start import main

if __name__ == "__main__":
    main()
