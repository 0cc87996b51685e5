"""What training minimises: terms that a recipe adds up, one file each.

Which copies of a batch there are and how they are made is decided in `training`.
"""
