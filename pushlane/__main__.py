"""`python -m pushlane` is `pushlane`."""

from pushlane.cli.main import main

if __name__ == "__main__":
    main()
