"""How images are attacked: climbing a loss within a box, the network as an attack sees it, and signs of masking."""
