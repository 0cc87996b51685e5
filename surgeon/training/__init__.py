"""Fine-tuning: recipes, the loop, and what happens after it."""
