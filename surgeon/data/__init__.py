"""Where samples come from: folders, Parquet files, Hugging Face data sets, presets; decoded, cut and batched.

What is done to them in training lies in `augment`.
"""
