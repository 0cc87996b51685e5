"""The `export` command: networks written for programs that do not know surgeon, one file per format."""
