"""What every other room stands on: errors, registries, specs, atomic files, processes, devices, versions.

Nothing here knows of networks' layers, images or commands.
"""
