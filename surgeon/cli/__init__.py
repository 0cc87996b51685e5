"""The command line, one thin file per command: options, help, progress, tables and errors; JSON for programs.

Nothing is computed here, and nothing here is imported by another room; process-wide settings are made here only.
"""
