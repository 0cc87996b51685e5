"""`surgeon predict`: which classes images show, as a network sees them."""
